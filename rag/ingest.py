"""From corpus to indexes. An index is a generation: named by its content, made aside, moved into place, never changed.

CACHE/lock                                  one writer at a time; the kernel lets go of it when a writer dies
CACHE/vectors.sqlite                        every vector ever made, by model and text
CACHE/generations/<fingerprint>/index.sqlite
CACHE/generations/<fingerprint>/chroma-<model>/
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rag import chunk, dense, lexical, shipped
from rag.embed import BATCH, Embedder, EmbeddingModel
from rag.errors import LibraryError
from rag.page import Page, parse

Progress = Callable[[str], None]

CORPUS = Path(__file__).resolve().parent.parent / "corpus"
SUFFIXES = frozenset({".md", ".cu", ".cuh", ".cpp", ".cc", ".h", ".hpp", ".hip", ".py"})

KEEP = 4
KEEP_S = 30 * 86400.0
"""Generations beyond the newest four go when nobody has opened them for thirty days."""


def default_cache() -> Path:
    """`$XDG_CACHE_HOME/kernel_agent/rag`, or the same under `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kernel_agent" / "rag"


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
                page = parse(path, data.decode().replace("\r\n", "\n"))
            except UnicodeDecodeError as error:
                raise LibraryError(f"{path}: not UTF-8 text") from error
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
            f"the index directory {cache} is not writable ({error.strerror}); name another one"
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
        _build_lexical(generation, corpus, progress)
        _sweep(generation.parent, generation)
        return _opened(path)


def discard(cache: Path, corpus: Corpus, progress: Progress) -> None:
    """Remove the indexes of `corpus`; the cached vectors stay, so that making them again embeds nothing."""
    with writer(cache, progress):
        shutil.rmtree(cache / "generations" / corpus.fingerprint, ignore_errors=True)


def _opened(path: Path) -> lexical.LexicalIndex:
    index = lexical.LexicalIndex(path)
    with contextlib.suppress(OSError):  # a cache we may only read serves as well
        os.utime(path.parent)
    return index


def _build_lexical(generation: Path, corpus: Corpus, progress: Progress) -> None:
    pages = corpus.pages()
    partial = generation.with_name(generation.name + ".partial")
    for old in (partial, generation):
        if old.exists():
            shutil.rmtree(old)
    partial.mkdir(parents=True)
    progress(f"indexing {len(pages)} pages")
    count = lexical.write(partial / "index.sqlite", pages, (c for page in pages for c in chunk.chunks(page)))
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
    model: EmbeddingModel,
    embedder: Embedder,
    progress: Progress,
    corpus: Path = CORPUS,
) -> dense.DenseIndex:
    """The vector index beside `index`; only texts whose vectors neither the cache nor the corpus holds are embedded."""
    path = dense.directory(index.path.parent, model.id)
    with contextlib.suppress(LibraryError):
        return dense.DenseIndex(path, model.id, index.size)
    with writer(cache, progress):
        if path.exists():
            try:
                return dense.DenseIndex(path, model.id, index.size)
            except LibraryError as error:
                progress(f"{error}: rebuilding it")
        texts = index.embedded()
        wanted = {dense.key(text): text for text in texts.values()}
        vectors = _vectors(cache, embedder, wanted, progress, shipped.file(corpus, model.id))
        dense.write(path, model.id, {name: vectors[dense.key(text)] for name, text in texts.items()})
        return dense.DenseIndex(path, model.id, index.size)


def refresh(cache: Path, embedder: Embedder, progress: Progress, corpus: Path = CORPUS) -> tuple[int, int]:
    """Make the vectors that ship with the corpus anew: those of its chunks, no others.

    Returns (how many, how many of them the file did not hold before).
    """
    wanted = {dense.key(c.embedded): c.embedded for page in read(corpus).pages() for c in chunk.chunks(page)}
    path = shipped.file(corpus, embedder.model.id)
    try:
        before = shipped.read(path, wanted)
    except LibraryError as error:
        progress(str(error))
        path.unlink()
        before = {}
    with writer(cache, progress):
        vectors = _vectors(cache, embedder, wanted, progress, path)
    shipped.write(path, vectors)
    return len(vectors), len(vectors) - len(before)


def _vectors(
    cache: Path, embedder: Embedder, texts: dict[str, str], progress: Progress, source: Path
) -> dict[str, bytes]:
    model = embedder.model.id
    known = dense.VectorCache(cache / "vectors.sqlite")
    try:
        if known.dropped:
            progress("the cache of vectors was broken and is begun anew")
        vectors = known.get(model, texts)
        if len(vectors) < len(texts):
            vectors = _shipped(source, texts, progress) | vectors
        missing = [name for name in texts if name not in vectors]
        for start in range(0, len(missing), BATCH):
            progress(f"embedding {start} of {len(missing)} chunks")
            batch = missing[start : start + BATCH]
            made = dict(zip(batch, embedder.embed([texts[name] for name in batch]), strict=True))
            known.put(model, made)
            vectors |= made
        progress(f"embedded {len(missing)} chunks, {len(vectors) - len(missing)} were known")
        return vectors
    finally:
        known.close()


def _shipped(source: Path, keys: Iterable[str], progress: Progress) -> dict[str, bytes]:
    try:
        return shipped.read(source, keys)
    except LibraryError as error:
        progress(f"{error}: embedding anew")
        return {}
