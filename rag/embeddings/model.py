"""The embedding model that the environment chose, as one thing that embeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from rag.embeddings import local
from rag.embeddings.config import EmbeddingConfig
from rag.embeddings.local import Embedder, EmbeddingModel
from rag.embeddings.openai import Endpoint


class Embeds(Protocol):
    """Whoever makes vectors: a local model in its child process, or an endpoint. `count` texts so far."""

    model: EmbeddingModel
    count: int

    def embed(self, texts: Sequence[str], asked: bool = False) -> list[bytes]:
        """One unit vector a text, as little-endian float32. Raises LibraryError."""

    def close(self) -> None:
        """End what was started."""


def why_not(choice: EmbeddingConfig) -> str | None:
    """Why no vectors can be made, in words; None where they can, as far as can be told without starting anything."""
    if choice.embeddings_url:
        return local.missing("chromadb", "openai")
    found = _local(choice)
    return found if isinstance(found, str) else None


def start(choice: EmbeddingConfig) -> Embeds | str:
    """The model at work, or why there is none. A local model loads in its child while the caller goes on."""
    if choice.embeddings_url and choice.model:
        return why_not(choice) or Endpoint(choice.embeddings_url, choice.model, choice.embeddings_key)
    found = _local(choice)
    return found if isinstance(found, str) else Embedder(found)


def _local(choice: EmbeddingConfig) -> EmbeddingModel | str:
    return local.model_in(Path(choice.model)) if choice.model else local.packaged_model()
