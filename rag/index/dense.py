"""Vectors: a cache of what was ever embedded, in SQLite, and a Chroma collection made from it for each index.

The collection stands in a directory of its index or, where the environment names one, on a Chroma server.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import sqlite3
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rag.errors import LibraryError
from rag.index.chroma import Store, VectorStorePath, faults, first_line, is_missing

BATCH = 1000
"""Vectors a call to Chroma, which takes at most 5461."""

OVERFETCH = 4
"""How many times the wanted hits are asked for, before the hard filter is given to Chroma itself (much slower)."""

T = TypeVar("T")

_BASE = "chroma.sqlite3"


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


class MissingError(LibraryError):
    """There is no vector index at a place, or one of no use: writing it anew mends that."""


def write(where: VectorStorePath, vectors: Mapping[str, bytes], before: Path | None = None) -> None:
    """Put float32 `vectors` by chunk id there: beside their place first, then moved into it.

    `before` is the embedded index of an older generation, from which a new one grows by what differs.
    Raises LibraryError where the server does not take them.
    """
    if where.url is not None:
        _write_server(where, vectors)
        return
    partial = VectorStorePath(where.path.with_name(where.path.name + ".partial"), where.name)
    for old in (partial.path, where.path):
        shutil.rmtree(old, ignore_errors=True)
    if before is None or not _grown(partial, vectors, before):
        shutil.rmtree(partial.path, ignore_errors=True)
        with contextlib.closing(Store(partial)) as store:
            _add(store.create(where.name), vectors, list(vectors))
    partial.path.rename(where.path)


def _grown(where: VectorStorePath, vectors: Mapping[str, bytes], before: Path) -> bool:
    """Copy the index `before` and bring it up to date; False where that cannot be done, or a new one is better."""
    try:
        shutil.copytree(before, where.path, ignore=shutil.ignore_patterns(f"{_BASE}*"))
        _copy_base(before / _BASE, where.path / _BASE)
        with contextlib.closing(Store(where)) as store:
            collection = store.get(where.name)
            held = set(collection.get(include=[])["ids"])
            gone, new = sorted(held - vectors.keys()), [name for name in vectors if name not in held]
            dead = (collection.metadata or {}).get("dead", 0) + len(gone)  # HNSW only marks what is deleted
            if dead + len(new) > len(vectors) // 2:
                return False
            for batch in _batches(gone):
                collection.delete(ids=batch)
            _add(collection, vectors, new)
            collection.modify(metadata={"dead": dead})
        return True
    except faults():
        return False


def _copy_base(source: Path, target: Path) -> None:
    """Copy the one file of Chroma's that readers of it write to."""
    with (
        contextlib.closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as old,
        contextlib.closing(sqlite3.connect(target)) as new,
    ):
        old.backup(new)
    _check(target)


def _write_server(where: VectorStorePath, vectors: Mapping[str, bytes]) -> None:
    partial = f"partial-{uuid.uuid4().hex}"
    try:
        with contextlib.closing(Store(where)) as store:
            collection = store.create(partial)
            _add(collection, vectors, list(vectors))
            try:
                DenseIndex(where, len(vectors)).close()
            except MissingError:
                with contextlib.suppress(*faults()):
                    store.delete(where.name)
                collection.modify(name=where.name)
            else:  # somebody else has made the same in the meantime
                store.delete(partial)
    except faults() as error:
        raise LibraryError(f"the Chroma server {where.url} did not take the vectors ({first_line(error)})") from error


def _add(collection: Any, vectors: Mapping[str, bytes], names: Sequence[str]) -> None:
    for batch in _batches(names):
        collection.add(ids=batch, embeddings=[_floats(vectors[name]) for name in batch])


def _batches(names: Sequence[str]) -> Iterator[list[str]]:
    return (list(names[start : start + BATCH]) for start in range(0, len(names), BATCH))


def _check(path: Path) -> None:
    """Raise sqlite3.Error for a broken file before Chroma meets it."""
    with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as base:
        if base.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
            raise sqlite3.DatabaseError("SQLite's quick check failed")


def _floats(vector: bytes) -> Any:
    import numpy as np

    return np.frombuffer(vector, dtype="<f4")


def cosines(vector: bytes, others: Sequence[bytes]) -> list[float]:
    """The cosine of a unit vector with each of the others."""
    return [float(_floats(vector) @ _floats(other)) for other in others]


class DenseIndex:
    """A Chroma collection opened for reading.

    Raises MissingError where there is none, it is broken or misses vectors, LibraryError where a server fails.
    """

    def __init__(self, where: VectorStorePath, size: int) -> None:
        self.where = where
        if where.url is None and not where.path.is_dir():
            raise MissingError(f"there is no vector index {where}")
        self._faults = faults()
        try:
            if where.url is None:
                _check(where.path / _BASE)
            self._store = Store(where)
        except self._faults as error:
            raise self._broken(error) from error
        try:
            self._collection = self._store.get(where.name)
            self._size = int(self._collection.count())
            some = self._collection.get(limit=1, include=["embeddings"])["embeddings"]
            self._dimension = len(some[0]) if len(some) else 0
        except self._faults as error:
            self.close()
            raise self._broken(error) from error
        if self._size != size:
            self.close()
            raise MissingError(f"the vector index {where} holds {self._size} of {size} vectors")

    def _broken(self, error: Exception) -> LibraryError:
        if self.where.url is None:
            says = f"the vector index {self.where} cannot be used ({first_line(error)})"
            return MissingError(f"{says}; `python -m rag build` remakes it")
        if is_missing(error):
            return MissingError(f"there is no vector index {self.where}")
        return LibraryError(f"the Chroma server {self.where.url} failed ({first_line(error)}): is it running?")

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
            pairs = zip(found["ids"][0], found["distances"][0], strict=True)
            return [(str(name), round(1.0 - float(distance), 6)) for name, distance in pairs]
        except self._faults as error:
            raise self._broken(error) from error

    def close(self) -> None:
        """Let go of the store. Safe to call twice."""
        self._store.close()


class GrowingIndex:
    """A Chroma collection of texts that come and go, such as experience, each under its id.

    An embedded one that is broken is begun anew; the caller is its only writer. On a server it is the team's, where
    what others have put is left alone. Raises LibraryError where it cannot be used.
    """

    def __init__(self, where: VectorStorePath) -> None:
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
            says = f"the vectors of experience in {self.where} cannot be used ({first_line(error)})"
            raise LibraryError(says) from error

    def _done(self, work: Callable[[Any], T]) -> T:
        if self.where.url is None and self.where.path.exists():
            _check(self.where.path / _BASE)
        store = Store(self.where)
        try:
            return work(store.grow(self.where.name))
        finally:
            store.close()


def _add_missing(collection: Any, vectors: Mapping[str, bytes], texts: Mapping[str, str]) -> None:
    there = set(collection.get(ids=list(vectors), include=[])["ids"])
    names = [name for name in vectors if name not in there]
    for batch in _batches(names):
        collection.upsert(
            ids=batch,
            embeddings=[_floats(vectors[name]) for name in batch],
            documents=[texts[name] for name in batch],
        )


def drop(where: VectorStorePath, ids: Sequence[str]) -> None:
    """Remove texts by id from all collections on a server whose name begins with the place's. Raises LibraryError."""
    try:
        store = Store(where)
        try:
            for collection in (store.get(name) for name in store.names() if name.startswith(where.name)):
                for batch in _batches(ids):
                    collection.delete(ids=batch)
        finally:
            store.close()
    except faults() as error:
        raise LibraryError(f"the Chroma server {where.url} did not let go of them ({first_line(error)})") from error
