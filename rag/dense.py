"""Vectors: a cache of what was ever embedded, in SQLite, and a Chroma collection made from it for each index.

The collection stands in a directory of its index or, where the environment names one, on a Chroma server.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import sqlite3
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from rag.choice import Choice
from rag.errors import LibraryError

ADD_BATCH = 1000
"""Vectors a call to Chroma, which takes at most 5461."""

OVERFETCH = 4
"""How many times the wanted hits are asked for, before the hard filter is given to Chroma itself (much slower)."""

T = TypeVar("T")

_HNSW = {"space": "cosine", "ef_construction": 200, "ef_search": 200}


def key(text: str) -> str:
    """Under what a text's vector is cached: equal text, equal vector."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class VectorCache:
    """Every vector made so far, by model and text. A broken file is dropped: it costs time to remake, not knowledge."""

    def __init__(self, path: Path) -> None:
        self.dropped = False
        try:
            self._base = self._open(path)
        except sqlite3.DatabaseError:
            path.unlink()
            self.dropped = True
            self._base = self._open(path)

    @staticmethod
    def _open(path: Path) -> sqlite3.Connection:
        base = sqlite3.connect(path)
        try:
            base.execute(
                "CREATE TABLE IF NOT EXISTS vectors (model TEXT, key TEXT, vector BLOB, PRIMARY KEY (model, key))"
            )
            if base.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise sqlite3.DatabaseError("quick check failed")
        except sqlite3.DatabaseError:
            base.close()
            raise
        return base

    def get(self, model: str, keys: Iterable[str]) -> dict[str, bytes]:
        """The vectors that are there."""
        sql = "SELECT vector FROM vectors WHERE model = ? AND key = ?"
        rows = ((name, self._base.execute(sql, (model, name)).fetchone()) for name in keys)
        return {name: row[0] for name, row in rows if row is not None}

    def forget(self, model: str) -> None:
        """Drop the vectors of a model, for one that answers to the name but gives vectors of another length."""
        with self._base:
            self._base.execute("DELETE FROM vectors WHERE model = ?", (model,))

    def put(self, model: str, vectors: Mapping[str, bytes]) -> None:
        """Keep vectors at once, so that a build killed later repeats nothing."""
        rows = [(model, name, vector) for name, vector in vectors.items()]
        with self._base:
            self._base.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)

    def close(self) -> None:
        self._base.close()


def collection_name(model: str) -> str:
    """The model's id as Chroma and file systems allow it."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", model).strip("-._")[:100]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a generation's vectors stand: a directory of Chroma's or a collection on its server."""

    path: Path
    name: str
    url: str | None = None
    token: str | None = None

    def __str__(self) -> str:
        return f"{self.name} on {self.url}" if self.url else str(self.path)

    def client(self, path: Path | None = None) -> Any:
        """A client of Chroma; `path` stands in for the place's own. Raises what Chroma raises."""
        import chromadb
        from chromadb.config import Settings

        settings = Settings(anonymized_telemetry=False)
        if self.url is None:
            return chromadb.PersistentClient(path=str(path or self.path), settings=settings)
        where = urlsplit(self.url)
        secure = where.scheme == "https"
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        port = where.port or (443 if secure else 8000)
        return chromadb.HttpClient(host=where.hostname or "", port=port, ssl=secure, headers=headers, settings=settings)


def place(generation: Path, model: str, choice: Choice) -> Place:
    """The place of a generation's vectors of `model`. On a server, equal indexes of a team meet in one collection."""
    name = collection_name(model)
    path = generation / f"chroma-{name}"
    if choice.chroma_url is None:
        return Place(path, name)
    return Place(path, f"{name}-{generation.name}", choice.chroma_url, choice.chroma_token)


def write(where: Place, vectors: Mapping[str, bytes]) -> None:
    """Put float32 `vectors` by chunk id there: beside their place first, then moved into it.

    Raises LibraryError where the server does not take them.
    """
    if where.url is not None:
        _write_server(where, vectors)
        return
    partial = where.path.with_name(where.path.name + ".partial")
    for old in (partial, where.path):
        if old.exists():
            shutil.rmtree(old)
    client = where.client(partial)
    try:
        _fill(client, where.name, vectors)
    finally:
        client.close()
    partial.rename(where.path)


def _write_server(where: Place, vectors: Mapping[str, bytes]) -> None:
    partial = f"partial-{uuid.uuid4().hex}"
    try:
        client = where.client()
        collection = _fill(client, partial, vectors)
        if where.name in {one.name for one in client.list_collections()}:
            client.delete_collection(where.name)
        collection.modify(name=where.name)
        _close(client)
    except faults() as error:
        raise LibraryError(f"the Chroma server {where.url} did not take the vectors ({_first(error)})") from error


def _close(client: Any) -> None:
    client.close()
    session = getattr(getattr(client, "_server", None), "_session", None)
    if session is not None:  # a server's client, which leaves its sockets to the garbage collector
        session.close()


def _fill(client: Any, name: str, vectors: Mapping[str, bytes]) -> Any:
    collection = client.create_collection(name, embedding_function=None, configuration={"hnsw": _HNSW})
    names = list(vectors)
    for start in range(0, len(names), ADD_BATCH):
        batch = names[start : start + ADD_BATCH]
        collection.add(ids=batch, embeddings=[_floats(vectors[name]) for name in batch])
    return collection


def faults() -> tuple[type[Exception], ...]:
    """What Chroma raises, embedded or as a server's client."""
    import httpx
    from chromadb.errors import ChromaError

    return (ChromaError, httpx.HTTPError, sqlite3.Error, OSError, ValueError, RuntimeError, KeyError)


def _first(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _check(path: Path) -> None:
    """Raise sqlite3.Error for a broken file before Chroma meets it: Chroma goes on giving out a client that failed."""
    with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as base:
        if base.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
            raise sqlite3.DatabaseError("SQLite's quick check failed")


def _floats(vector: bytes) -> Any:
    import numpy as np

    return np.frombuffer(vector, dtype="<f4")


class DenseIndex:
    """A Chroma collection opened for reading. Raises LibraryError where it cannot be opened or misses vectors."""

    def __init__(self, where: Place, size: int) -> None:
        self.where = where
        if where.url is None and not where.path.is_dir():
            raise LibraryError(f"there is no vector index {where}")
        self._faults = faults()
        try:
            if where.url is None:
                _check(where.path / "chroma.sqlite3")
            self._client = where.client()
        except self._faults as error:
            raise self._broken(error) from error
        try:
            self._collection = self._client.get_collection(where.name, embedding_function=None)
            self._size = self._collection.count()
            some = self._collection.get(limit=1, include=["embeddings"])["embeddings"]
            self._dimension = len(some[0]) if len(some) else 0
        except self._faults as error:
            self.close()
            raise self._broken(error) from error
        if self._size != size:
            self.close()
            raise LibraryError(f"the vector index {where} holds {self._size} of {size} vectors")

    def _broken(self, error: Exception) -> LibraryError:
        mend = "is the server running?" if self.where.url else "`python -m rag build` remakes it"
        return LibraryError(f"the vector index {self.where} cannot be used ({_first(error)}); {mend}")

    def search(self, vector: bytes, allowed: Sequence[str], limit: int) -> list[tuple[str, float]]:
        """Ids out of `allowed` with their cosine similarity, best first, ties by id."""
        if not allowed:
            return []
        if len(vector) != 4 * self._dimension:
            raise LibraryError(
                f"the model gives {len(vector) // 4} numbers a text, but its index {self.where} holds "
                f"{self._dimension}: it is another model of the same name; `python -m rag build` embeds anew"
            )
        permitted = set(allowed)
        hits = self._nearest(vector, min(self._size, OVERFETCH * limit), None)
        hits = [hit for hit in hits if hit[0] in permitted]
        wanted = min(limit, len(permitted))
        if len(hits) < wanted:
            hits = self._nearest(vector, wanted, list(allowed))
        return sorted(hits, key=lambda hit: (-hit[1], hit[0]))[:limit]

    def _nearest(self, vector: bytes, count: int, ids: list[str] | None) -> list[tuple[str, float]]:
        try:
            found = self._collection.query(
                query_embeddings=[_floats(vector)], n_results=count, ids=ids, include=["distances"]
            )
        except self._faults as error:
            raise self._broken(error) from error
        pairs = zip(found["ids"][0], found["distances"][0], strict=True)
        return [(str(name), round(1.0 - float(distance), 6)) for name, distance in pairs]

    def close(self) -> None:
        """Let go of the store. Safe to call twice."""
        with contextlib.suppress(*self._faults):
            _close(self._client)


class GrowingIndex:
    """A Chroma collection of texts that come and go, such as experience, each under its id.

    An embedded one that is broken is begun anew; the caller is its only writer. On a server it is the team's, where
    what others have put is left alone. Raises LibraryError where it cannot be used.
    """

    def __init__(self, where: Place) -> None:
        self.where = where

    def put(self, vectors: Mapping[str, bytes], texts: Mapping[str, str]) -> None:
        """Hold float32 `vectors` with the texts that they are of, by id; what is there already stays."""
        self._tried(lambda collection: _add_missing(collection, vectors, texts))

    def nearest(self, vector: bytes, vectors: Mapping[str, bytes], texts: Mapping[str, str]) -> list[tuple[str, float]]:
        """The ids of these texts with their cosine similarity, best first, ties by id; what is missing is put first."""

        def search(collection: Any) -> list[tuple[str, float]]:
            _add_missing(collection, vectors, texts)
            found = collection.query(
                query_embeddings=[_floats(vector)], n_results=len(vectors), ids=list(vectors), include=["distances"]
            )
            pairs = zip(found["ids"][0], found["distances"][0], strict=True)
            return sorted(
                ((str(name), round(1.0 - float(far), 6)) for name, far in pairs), key=lambda hit: (-hit[1], hit[0])
            )

        return self._tried(search)

    def _tried(self, work: Callable[[Any], T]) -> T:
        try:
            try:
                return self._done(work)
            except faults():
                if self.where.url is not None:
                    raise
                shutil.rmtree(self.where.path, ignore_errors=True)
                return self._done(work)
        except faults() as error:
            raise LibraryError(f"the vectors of experience in {self.where} cannot be used ({_first(error)})") from error

    def _done(self, work: Callable[[Any], T]) -> T:
        if self.where.url is None and self.where.path.exists():
            _check(self.where.path / "chroma.sqlite3")
        client = self.where.client()
        try:
            return work(
                client.get_or_create_collection(self.where.name, embedding_function=None, configuration={"hnsw": _HNSW})
            )
        finally:
            _close(client)


def _add_missing(collection: Any, vectors: Mapping[str, bytes], texts: Mapping[str, str]) -> None:
    there = set(collection.get(ids=list(vectors), include=[])["ids"])
    names = [name for name in vectors if name not in there]
    for start in range(0, len(names), ADD_BATCH):
        batch = names[start : start + ADD_BATCH]
        collection.upsert(
            ids=batch,
            embeddings=[_floats(vectors[name]) for name in batch],
            documents=[texts[name] for name in batch],
        )


def drop(where: Place, ids: Sequence[str]) -> None:
    """Remove texts by id from all collections on a server whose name begins with the place's. Raises LibraryError."""
    try:
        client = where.client()
        try:
            for one in client.list_collections():
                if one.name.startswith(where.name):
                    for start in range(0, len(ids), ADD_BATCH):
                        one.delete(ids=list(ids[start : start + ADD_BATCH]))
        finally:
            _close(client)
    except faults() as error:
        raise LibraryError(f"the Chroma server {where.url} did not let go of them ({_first(error)})") from error
