"""Knowledge: a corpus of pages and kernels, indexed and searched. Importing this loads neither torch nor Chroma."""

from rag.errors import LibraryError
from rag.library import Library
from rag.retrieval.passage import Answer, Passage, Query
from rag.retrieval.plan import Situation

__all__ = ["Answer", "Library", "LibraryError", "Passage", "Query", "Situation"]
