"""Knowledge: a corpus of pages and kernels, indexed and searched. Importing this loads neither torch nor Chroma."""

from rag.passage import Passage

__all__ = ["Passage"]
