"""Vectors: a cache of what was ever embedded, in SQLite, and a Chroma collection made from it for each index."""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rag.errors import LibraryError

ADD_BATCH = 1000
"""Vectors a call to Chroma, which takes at most 5461."""

OVERFETCH = 4
"""How many times the wanted hits are asked for, before the hard filter is given to Chroma itself (much slower)."""

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

    def put(self, model: str, vectors: Mapping[str, bytes]) -> None:
        """Keep vectors at once, so that a build killed later repeats nothing."""
        rows = [(model, name, vector) for name, vector in vectors.items()]
        with self._base:
            self._base.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)

    def close(self) -> None:
        self._base.close()


def directory(generation: Path, model: str) -> Path:
    """Where a generation keeps its Chroma store for `model`."""
    return generation / f"chroma-{collection_name(model)}"


def collection_name(model: str) -> str:
    """The model's id as Chroma and file systems allow it."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", model).strip("-._")[:100]


def write(path: Path, model: str, vectors: Mapping[str, bytes]) -> None:
    """Make a Chroma store at `path` of float32 `vectors` by chunk id: beside its place first, then moved there."""
    partial = path.with_name(path.name + ".partial")
    for old in (partial, path):
        if old.exists():
            shutil.rmtree(old)
    client = _client(partial)
    try:
        collection = client.create_collection(
            collection_name(model), embedding_function=None, configuration={"hnsw": _HNSW}
        )
        names = list(vectors)
        for start in range(0, len(names), ADD_BATCH):
            batch = names[start : start + ADD_BATCH]
            collection.add(ids=batch, embeddings=[_floats(vectors[name]) for name in batch])
    finally:
        client.close()
    partial.rename(path)


def _client(path: Path) -> Any:
    import chromadb
    from chromadb.config import Settings

    return chromadb.PersistentClient(path=str(path), settings=Settings(anonymized_telemetry=False))


def _check(path: Path) -> None:
    """Raise sqlite3.Error for a broken file before Chroma meets it: Chroma goes on giving out a client that failed."""
    with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as base:
        if base.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
            raise sqlite3.DatabaseError("SQLite's quick check failed")


def _floats(vector: bytes) -> Any:
    import numpy as np

    return np.frombuffer(vector, dtype="<f4")


class DenseIndex:
    """A Chroma store opened for reading. Raises LibraryError where it cannot be opened or misses vectors."""

    def __init__(self, path: Path, model: str, size: int) -> None:
        from chromadb.errors import ChromaError

        self.path = path
        self._faults: tuple[type[Exception], ...] = (ChromaError, sqlite3.Error, OSError, ValueError, RuntimeError)
        if not path.is_dir():
            raise LibraryError(f"there is no vector index {path}")
        try:
            _check(path / "chroma.sqlite3")
            self._client = _client(path)
        except self._faults as error:
            raise self._broken(error) from error
        try:
            self._collection = self._client.get_collection(collection_name(model), embedding_function=None)
            self._size = self._collection.count()
        except self._faults as error:
            self.close()
            raise self._broken(error) from error
        if self._size != size:
            self.close()
            raise LibraryError(f"the vector index {path} holds {self._size} of {size} vectors")

    def _broken(self, error: Exception) -> LibraryError:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        return LibraryError(f"the vector index {self.path} is broken ({reason}); `python -m rag build` remakes it")

    def search(self, vector: bytes, allowed: Sequence[str], limit: int) -> list[tuple[str, float]]:
        """Ids out of `allowed` with their cosine similarity, best first, ties by id."""
        if not allowed:
            return []
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
        with contextlib.suppress(*self._faults):
            self._client.close()
