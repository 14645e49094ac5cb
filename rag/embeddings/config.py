"""What the environment, and `.env` in the working directory where the environment is silent, say of models and stores.

RAG_MODEL            directory of a sentence-transformers model or, with RAG_EMBEDDINGS_URL, the name of a model there
RAG_EMBEDDINGS_URL   an OpenAI-compatible endpoint, such as http://localhost:8000/v1
RAG_EMBEDDINGS_KEY   its key, where it wants one
RAG_CHROMA_URL       a Chroma server that a team shares, such as http://chroma.local:8000; else Chroma runs embedded
RAG_CHROMA_TOKEN     its bearer token, where it wants one
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from rag import text_files
from rag.errors import LibraryError


@dataclass(frozen=True, slots=True)
class EmbeddingConfig:
    """Which model embeds and where its vectors stand; None is the packaged model and the embedded store."""

    model: str | None = None
    embeddings_url: str | None = None
    embeddings_key: str | None = field(default=None, repr=False)
    chroma_url: str | None = None
    chroma_token: str | None = field(default=None, repr=False)


def variables(directory: Path = Path()) -> dict[str, str]:
    """The RAG_* variables that say something: the environment's, then those of `.env` in `directory`.

    Raises LibraryError where that file cannot be read.
    """
    found: dict[str, str | None] = {}
    file = directory / ".env"
    if file.is_file():
        from dotenv import dotenv_values

        try:
            found = dotenv_values(stream=io.StringIO(text_files.read(file, otherwise="cp1252")))
        except OSError as error:
            raise LibraryError(f"{file.absolute()} cannot be read ({error.strerror})") from None
        except text_files.NotText as fault:
            raise LibraryError(f"{file.absolute()} {fault}") from None
    every = (*found.items(), *os.environ.items())
    return {name: value for name, value in every if value and name.startswith("RAG_")}


def from_environment(environment: Mapping[str, str] | None = None) -> EmbeddingConfig:
    """The choice that the RAG_* variables make. Raises LibraryError for an address that is none, or lacks a model."""
    environment = variables() if environment is None else environment
    model, url, key, chroma, token = (
        environment.get(f"RAG_{name}") or None
        for name in ("MODEL", "EMBEDDINGS_URL", "EMBEDDINGS_KEY", "CHROMA_URL", "CHROMA_TOKEN")
    )
    for name, address in (("RAG_EMBEDDINGS_URL", url), ("RAG_CHROMA_URL", chroma)):
        if address and (urlsplit(address).scheme not in ("http", "https") or not urlsplit(address).hostname):
            raise LibraryError(f"{name} is {address!r}, which is no http(s) address")
    if url and not model:
        raise LibraryError("RAG_EMBEDDINGS_URL is set without RAG_MODEL: name the model to ask that endpoint for")
    return EmbeddingConfig(model, url, key, chroma, token)
