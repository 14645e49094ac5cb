"""The door to Chroma, embedded or a server.

Its parts are put together here and not by its own clients: those wait for a server for ever, hand a store that failed
to the next who asks, and load whatever embedding function, code included, a server says that a collection has.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

from rag import folders
from rag.embeddings.config import EmbeddingConfig

ANSWER_S = 10.0
"""Seconds that a server may be silent."""

SAID = 200
"""Characters shown of what a server says."""

_HNSW = {"space": "cosine", "ef_construction": 200, "ef_search": 200}


def collection_name(model: str) -> str:
    """The model's id as Chroma and file systems allow it."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", model).strip("-._")[:100]


@dataclass(frozen=True, slots=True)
class VectorStorePath:
    """Where a generation's vectors stand: a directory of Chroma's or a collection on its server."""

    path: Path
    name: str
    url: str | None = None
    token: str | None = None

    def __str__(self) -> str:
        return f"{self.name} on {self.url}" if self.url else str(self.path)


def place(generation: Path, model: str, choice: EmbeddingConfig) -> VectorStorePath:
    """The place of a generation's vectors of `model`. On a server, equal indexes of a team meet in one collection."""
    name = collection_name(model)
    path = generation / f"chroma-{name}"
    if choice.chroma_url is None:
        return VectorStorePath(path, name)
    return VectorStorePath(path, f"{name}-{generation.name}", choice.chroma_url, choice.chroma_token)


class Store:
    """An opened store. Raises one of `faults()` wherever Chroma, or the way to it, fails."""

    def __init__(self, where: VectorStorePath) -> None:
        _load()
        from chromadb.api import ServerAPI
        from chromadb.config import System

        self._system = System(_settings(where))
        self._api: Any = self._system.instance(ServerAPI)
        if where.url is not None:
            self._api._session.timeout = ANSWER_S
            self._api._session.event_hooks = {"response": [_accepted]}
        self._system.start()

    def create(self, name: str) -> Any:
        """A new collection of vectors."""
        return self._collection(self._api.create_collection(name, configuration={"hnsw": _HNSW}))

    def grow(self, name: str) -> Any:
        """The collection of that name, a new one where there is none."""
        return self._collection(self._api.create_collection(name, configuration={"hnsw": _HNSW}, get_or_create=True))

    def names(self) -> list[str]:
        """The names of all collections."""
        return [str(one.name) for one in self._api.list_collections()]

    def get(self, name: str) -> Any:
        """The collection of that name."""
        return self._collection(self._api.get_collection(name))

    def delete(self, name: str) -> None:
        """Remove the collection of that name."""
        self._api.delete_collection(name)

    def _collection(self, model: Any) -> Any:
        from chromadb.api.models.Collection import Collection

        model.serialized_schema, model.configuration_json = None, {}  # what names embedding functions
        return Collection(self._api, model, embedding_function=None)

    def close(self) -> None:
        """Let go of it. Safe to call twice."""
        with contextlib.suppress(*faults()):
            self._system.stop()
            self._api._session.close()


def _load() -> None:
    """Import Chroma, which asks for the user's home meanwhile and would read the `.env` of whatever folder this is."""
    from pydantic_settings import DotEnvSettingsSource

    with folders.some_home(), patch.object(DotEnvSettingsSource, "_load_env_vars", lambda _: {}):
        import chromadb  # noqa: F401


def _settings(where: VectorStorePath) -> Any:
    from chromadb.config import Settings

    if where.url is None:
        return Settings(
            _env_file=None,
            anonymized_telemetry=False,
            chroma_api_impl="chromadb.api.rust.RustBindingsAPI",
            is_persistent=True,
            persist_directory=str(where.path),
        )
    address = urlsplit(where.url)
    secure = address.scheme == "https"
    return Settings(
        _env_file=None,
        anonymized_telemetry=False,
        chroma_api_impl="chromadb.api.fastapi.FastAPI",
        chroma_server_host=address.hostname,
        chroma_server_http_port=address.port or (443 if secure else 8000),
        chroma_server_ssl_enabled=secure,
        chroma_server_headers={"Authorization": f"Bearer {where.token}"} if where.token else None,
    )


def _accepted(response: Any) -> None:
    """Raise for a refusal before Chroma's client does: it raises a bare Exception for words that it does not know."""
    import httpx

    if not response.is_success:
        said = " ".join(response.read().decode(errors="replace").split())
        message = f"{response.status_code} {response.reason_phrase}: {said[:SAID]}"
        raise httpx.HTTPStatusError(message, request=response.request, response=response)


def faults() -> tuple[type[Exception], ...]:
    """What Chroma raises, embedded or as a server's client, for what it cannot do and for answers that are none."""
    import httpx

    _load()
    from chromadb.errors import ChromaError

    bad_answers = (ValueError, TypeError, LookupError, AttributeError)
    return (ChromaError, httpx.HTTPError, sqlite3.Error, OSError, RuntimeError, *bad_answers)


def is_missing(error: Exception) -> bool:
    """Whether the fault is that there is no such collection."""
    _load()
    from chromadb.errors import NotFoundError

    return isinstance(error, NotFoundError) or getattr(getattr(error, "response", None), "status_code", 0) == 404


def first_line(error: Exception) -> str:
    """What a fault says, in one line."""
    return (str(error).splitlines() or [type(error).__name__])[0][: 2 * SAID]
