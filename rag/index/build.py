"""From corpus to indexes. An index is a generation: named by its content, made aside, moved into place, never changed.

CACHE/lock                                  one writer at a time; the kernel lets go of it when a writer dies
CACHE/vectors.sqlite                        every vector ever made, by model and text
CACHE/generations/<fingerprint>/index.sqlite
CACHE/generations/<fingerprint>/chroma-<model>/
CACHE/own/                                  the same of the user's own documents: see user_documents.py
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rag import folders, text_files
from rag.corpus_path import CORPUS
from rag.documents import chunk
from rag.documents.page import Page, parse, problems
from rag.embeddings.config import EmbeddingConfig
from rag.embeddings.model import Embeds
from rag.errors import LibraryError
from rag.index import chroma, dense, lexical, shipped_vectors
from rag.index.user_documents import Record, Tags

Progress = Callable[[str], None]

SUFFIXES = frozenset({".md", ".cu", ".cuh", ".cpp", ".cc", ".h", ".hpp", ".hip", ".py"})

EMBED_BATCH = 16
"""Texts after which their vectors are kept, so that a killed build repeats at most these."""

KEEP = 4
KEEP_S = 30 * 86400.0
"""Generations beyond the newest four go when nobody has opened them for thirty days."""


def default_cache() -> Path:
    """`$XDG_CACHE_HOME/kernel_agent/rag`, or the same under `~/.cache`; see folders.cache. Raises LibraryError."""
    return folders.cache()[0] / "kernel_agent" / "rag"


@dataclass(frozen=True, slots=True)
class Corpus:
    """The files of a corpus, by their path in it. `fingerprint` changes with any byte, and with our own versions."""

    files: dict[str, bytes]

    @property
    def fingerprint(self) -> str:
        h = hashlib.sha256(f"{chunk.VERSION} {lexical.SCHEMA}".encode())
        for path, data in sorted(self.files.items()):
            h.update(f"\0{path}\0{len(data)}\0".encode() + data)
        return h.hexdigest()[:16]

    def pages(self) -> list[Page]:
        """The parsed pages in order of path. Raises LibraryError for bad front matter, other than UTF-8, twin ids."""
        pages: dict[str, Page] = {}
        for path, data in sorted(self.files.items()):
            try:
                page = parse(path, text_files.decoded(data))
            except text_files.NotText as fault:
                raise LibraryError(f"{path} {fault}") from None
            if page.id in pages:
                raise LibraryError(f"{path}: the id {page.id!r} is already that of {pages[page.id].path}")
            pages[page.id] = page
        return list(pages.values())


def read(root: Path = CORPUS) -> Corpus:
    """Read a corpus. Hidden files are left out, and a file that is there twice (a kernel of two operators) counts once.

    Raises LibraryError where there is none.
    """
    found = sorted(path for path in root.rglob("*") if path.suffix in SUFFIXES and path.is_file())
    shown = ((path, path.relative_to(root)) for path in found)
    first: dict[bytes, str] = {}
    for path, name in shown:
        if not any(part[0] in "._" for part in name.parts):
            first.setdefault(path.read_bytes(), name.as_posix())
    if not first:
        raise LibraryError(f"there is no corpus in {root}: it should hold docs/*.md and kernels/<op>/*")
    return Corpus({name: data for data, name in first.items()})


@contextlib.contextmanager
def writer(cache: Path, progress: Progress) -> Iterator[None]:
    """Be the only writer of `cache`; waits, and says so, while another process is."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = (cache / "lock").open("a")
    except OSError as error:
        raise LibraryError(
            f"the index directory {cache} is not writable ({error.strerror}); "
            "set XDG_CACHE_HOME to a folder that can be written"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("another process is building the index; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def open_lexical(cache: Path, corpus: Corpus, progress: Progress) -> lexical.LexicalIndex:
    """The lexical index of `corpus`, built if it is missing, rebuilt with a message if it is broken."""
    generation = cache / "generations" / corpus.fingerprint
    path = generation / "index.sqlite"
    with contextlib.suppress(LibraryError):
        return _opened(path)
    with writer(cache, progress):
        if path.exists():  # made by another process in the meantime, or broken
            try:
                return _opened(path)
            except LibraryError as error:
                progress(f"{error}: rebuilding it")
        _build_lexical(generation, corpus.pages(), progress)
        _sweep(generation.parent, generation)
        return _opened(path)


def discard(cache: Path, corpus: Corpus, progress: Progress, vectors: bool = False) -> None:
    """Remove the indexes; the cached vectors stay, so that making them again embeds nothing, unless `vectors`."""
    with writer(cache, progress):
        shutil.rmtree(cache / "generations" / corpus.fingerprint, ignore_errors=True)
        shutil.rmtree(cache / "own" / "generations", ignore_errors=True)
        if vectors:
            (cache / "vectors.sqlite").unlink(missing_ok=True)


def _opened(path: Path) -> lexical.LexicalIndex:
    index = lexical.LexicalIndex(path)
    with contextlib.suppress(OSError):  # a cache we may only read serves as well
        os.utime(path.parent)
    return index


def _build_lexical(generation: Path, pages: list[Page], progress: Progress, before: Path | None = None) -> None:
    """Make a generation, from the pages alone or as what differs from the one `before`."""
    partial = generation.with_name(generation.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    progress(f"indexing {len(pages)} pages")
    index = partial / "index.sqlite"
    if before is not None:
        with contextlib.suppress(LibraryError, OSError):
            lexical.LexicalIndex(before / index.name).close()
            shutil.copyfile(before / index.name, index)
    try:
        count = lexical.write(index, pages)
    except sqlite3.Error as error:  # a full disk, a path that is too long for SQLite
        raise LibraryError(
            f"the index cannot be written in {generation.parent} ({error}); set XDG_CACHE_HOME to another folder"
        ) from error
    shutil.rmtree(generation, ignore_errors=True)
    partial.rename(generation)
    progress(f"indexed {len(pages)} pages in {count} chunks")


def _sweep(generations: Path, current: Path) -> None:
    """Remove what killed builds left, and generations that nobody has opened for long."""
    for path in generations.glob("*.partial"):
        shutil.rmtree(path)
    aged = sorted((p for p in generations.iterdir() if p != current), key=lambda p: p.stat().st_mtime, reverse=True)
    for path in aged[KEEP - 1 :]:
        if time.time() - path.stat().st_mtime > KEEP_S:
            shutil.rmtree(path)


def open_dense(
    cache: Path,
    index: lexical.LexicalIndex,
    embedder: Embeds,
    choice: EmbeddingConfig,
    progress: Progress,
    corpus: Path | None = CORPUS,
) -> dense.DenseIndex:
    """The vector index beside `index`; only texts whose vectors neither the cache nor the corpus holds are embedded."""
    where = chroma.place(index.path.parent, embedder.model.id, choice)
    with contextlib.suppress(dense.MissingError):
        return dense.DenseIndex(where, index.size)
    with writer(cache, progress):
        try:
            return dense.DenseIndex(where, index.size)  # made by another process in the meantime, or broken
        except dense.MissingError as error:
            if where.path.exists():
                progress(f"{error}: rebuilding it")
        _build_dense(cache, index, embedder, where, progress, corpus)
        return dense.DenseIndex(where, index.size)


def _build_dense(
    cache: Path,
    index: lexical.LexicalIndex,
    embedder: Embeds,
    where: chroma.VectorStorePath,
    progress: Progress,
    corpus: Path | None,
    before: Path | None = None,
) -> None:
    texts = index.embedded()
    wanted = {dense.key(text): text for text in texts.values()}
    source = shipped_vectors.file(corpus, embedder.model.id) if corpus else None
    vectors = vectors_of(cache, embedder, wanted, progress, source)
    dense.write(where, {name: vectors[dense.key(text)] for name, text in texts.items()}, before)


EMBED_UNASKED = 2000
"""Chunks of own documents that are embedded without being asked for: four minutes on one core. All others wait for
`--embed`, and are found by their words until then."""


def check(tags: Tags) -> None:
    """Raise LibraryError where a tag is in no closed list, so that a misspelt one never hides a document."""
    page = Page("x", "x", "x", "", tags.archs, tags.families, languages=tags.languages, is_code=True)
    if faults := [fault for fault in problems([page]) if "missing" not in fault]:
        raise LibraryError(faults[0].partition(": ")[2])


def grow(cache: Path, embedder: Embeds | None, choice: EmbeddingConfig, progress: Progress, embed: bool) -> str:
    """Index what the record of own documents holds, as a new generation that serves once it is complete.

    `embedder` None makes no vectors. Returns in words what became of them. The caller is the writer.
    """
    with contextlib.closing(Record(cache)) as record:
        generation = record.directory / "generations" / record.fingerprint
        path = generation / "index.sqlite"
        before = record.serving
        pages = record.pages()
        if not pages:
            record.serve(None)
            return "there is nothing to index"
        try:
            index = _opened(path)
        except LibraryError:
            _build_lexical(generation, pages, progress, before)
            index = _opened(path)
        with contextlib.closing(index):
            try:
                said = _own_vectors(cache, index, embedder, choice, progress, embed, before)
            except LibraryError as error:
                said = f"found by their words alone: {error}"
        if before != generation:
            record.serve(generation)
        return said


def open_own(cache: Path, progress: Progress) -> lexical.LexicalIndex | None:
    """The index of the user's own documents, rebuilt with a message if it is broken; None where there are none."""
    if not (cache / "own" / "record.sqlite").is_file():
        return None
    with contextlib.closing(Record(cache)) as record:
        serving, wanted = record.serving, bool(record.roots())
    if not wanted:
        return None
    if serving is not None:
        try:
            return _opened(serving / "index.sqlite")
        except LibraryError as error:
            progress(f"{error}: rebuilding it")
    with writer(cache, progress):
        grow(cache, None, EmbeddingConfig(), progress, embed=False)
    with contextlib.closing(Record(cache)) as record:
        return _opened(record.serving / "index.sqlite") if record.serving else None


def _own_vectors(
    cache: Path,
    index: lexical.LexicalIndex,
    embedder: Embeds | None,
    choice: EmbeddingConfig,
    progress: Progress,
    embed: bool,
    before: Path | None,
) -> str:
    if embedder is None:
        return "found by their words alone: no model embeds"
    model = embedder.model.id
    where = chroma.place(index.path.parent, model, choice)
    with contextlib.suppress(dense.MissingError):
        dense.DenseIndex(where, index.size).close()
        return "found by words and vectors"
    keys = {dense.key(text) for text in index.embedded().values()}
    with contextlib.closing(dense.VectorCache(cache / "vectors.sqlite")) as known:
        missing = len(keys) - len(known.get(model, keys))
    if missing > EMBED_UNASKED and not embed:
        return (
            f"found by their words alone: embedding {missing:,} chunks takes about {missing / 8 / 60:.0f} minutes of a "
            "core with the packaged model; `--embed` does it"
        )
    older = before and chroma.place(before, model, EmbeddingConfig()).path
    _build_dense(cache, index, embedder, where, progress, None, older)
    return "found by words and vectors"


def refresh(cache: Path, embedder: Embeds, progress: Progress, corpus: Path = CORPUS) -> tuple[int, int]:
    """Make the vectors that ship with the corpus anew: those of its chunks, no others.

    Returns (how many, how many of them the file did not hold before).
    """
    wanted = {dense.key(c.embedded): c.embedded for page in read(corpus).pages() for c in chunk.chunks(page)}
    path = shipped_vectors.file(corpus, embedder.model.id)
    try:
        before = shipped_vectors.read(path, wanted)
    except LibraryError as error:
        progress(str(error))
        path.unlink()
        before = {}
    with writer(cache, progress):
        vectors = vectors_of(cache, embedder, wanted, progress, path)
    shipped_vectors.write(path, vectors)
    return len(vectors), len(vectors) - len(before)


def vectors_of(
    cache: Path, embedder: Embeds, texts: dict[str, str], progress: Progress, source: Path | None
) -> dict[str, bytes]:
    """The vectors of texts by `dense.key`: from the cache, the file of shipped ones at `source`, or the model."""
    model = embedder.model.id
    known = dense.VectorCache(cache / "vectors.sqlite")
    try:
        if known.dropped:
            progress("the cache of vectors was broken and is begun anew")
        vectors = known.get(model, texts)
        if len(vectors) < len(texts):
            vectors = (_shipped(source, texts, progress) if source else {}) | vectors
        missing = [name for name in texts if name not in vectors]
        for start in range(0, len(missing), EMBED_BATCH):
            progress(f"embedding {start} of {len(missing)} chunks")
            batch = missing[start : start + EMBED_BATCH]
            made = dict(zip(batch, embedder.embed([texts[name] for name in batch]), strict=True))
            if {len(vector) for vector in (*made.values(), *vectors.values())} != {len(made[batch[0]])}:
                known.forget(model)
                raise LibraryError(
                    f"the model {model} gives vectors of another length than it did: what was kept of it is dropped, "
                    "the next build embeds all anew"
                )
            known.put(model, made)
            vectors |= made
        progress(f"embedded {len(missing)} chunks, {len(vectors) - len(missing)} were known")
        return vectors
    finally:
        known.close()


def _shipped(source: Path, keys: Iterable[str], progress: Progress) -> dict[str, bytes]:
    try:
        return shipped_vectors.read(source, keys)
    except LibraryError as error:
        progress(f"{error}: embedding anew")
        return {}
