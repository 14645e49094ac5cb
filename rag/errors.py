"""The one fault of the library. It stands here, and not in kernel_agent, because rag knows nothing of the rest."""

from __future__ import annotations


class LibraryError(Exception):
    """The corpus, an index or the embedding model cannot be used; the text says which and what to do."""
