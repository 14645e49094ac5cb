"""Which experience is recalled: by words alone, and with the real MiniLM and Chroma where they are installed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rag import Library, Query
from rag.embeddings.local import packaged_model
from rag.experience.ranking import by_words, forget, told
from tests.support.experiences import experience

KNOWN = (
    experience("row", date="2026-01-01"),
    experience("tile", families=("gemm",), operators=("mm",), title="Tile the product through shared memory"),
    experience("scan", families=("scan",), operators=("cumsum",), title="Look back for the prefix of a block"),
)
hybrid = pytest.mark.skipif(isinstance(packaged_model(), str), reason="the embedding model is not installed")


def ids(library: Library, question: str) -> list[str]:
    return [one.id for one in library.recall(question, KNOWN).experiences]


@pytest.fixture
def worded(tmp_path: Path, corpus: Path) -> Iterator[Library]:
    with Library.open(tmp_path / "cache", "lexical", corpus=corpus) as library:
        yield library


def test_words_rank_all_of_it_and_say_why_it_is_words_alone(worded: Library) -> None:
    found = worded.recall("matmul of matrices", KNOWN)
    assert [one.id for one in found.experiences] == ["tile", "scan", "row"]
    assert (found.mode, found.reason) == ("lexical", "lexical retrieval was asked for")
    assert ids(worded, "cumsum")[0] == "scan"
    assert ids(worded, "zyx") == ["tile", "scan", "row"], "where no word is shared the newest come first"
    assert worded.recall("cumsum", ()).experiences == ()


def test_without_vectors_nothing_is_made_of_experience(worded: Library, tmp_path: Path) -> None:
    worded.learn(KNOWN)
    worded.recall("cumsum", KNOWN)
    assert not (tmp_path / "cache" / "experience").exists()


def test_the_rarer_word_counts_more() -> None:
    texts = {"a": "sum of rows", "b": "sum of columns", "c": "sum"}
    assert next(name for name, _ in by_words("sum columns", texts)) == "b"
    assert by_words("", texts) == by_words("nothing shared", {}) == []


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def opened(home: Path, write_corpus: Callable[[Path], Path]) -> Iterator[Library]:
    with Library.open(home, "hybrid", corpus=write_corpus(home / "corpus")) as library:
        yield library


@pytest.fixture
def library(opened: Library, home: Path) -> Library:
    forget(["any"], home)
    return opened


def texts(home: Path) -> list[str]:
    """What the collection of experience holds."""
    from rag.embeddings.config import EmbeddingConfig
    from rag.experience.ranking import place
    from rag.index import dense

    found = packaged_model()
    assert not isinstance(found, str)
    where = place(home, found.id, EmbeddingConfig())
    return dense.GrowingIndex(where)._done(lambda collection: sorted(collection.get()["documents"]))


@hybrid
def test_vectors_find_what_shares_no_word_and_have_their_own_collection(library: Library, home: Path) -> None:
    library.learn(KNOWN[:1])
    assert texts(home) == [told(KNOWN[0])]
    found = library.recall("multiplication with weights, dense layer", KNOWN)
    assert (found.mode, found.experiences[0].id) == ("hybrid", "tile")
    assert texts(home) == sorted(map(told, KNOWN)), "what the ledger was given elsewhere is put there when it is asked"
    answer = library.search(Query("tile the product through shared memory", kinds=("page", "kernel", "own"), limit=20))
    assert all("Tile the product" not in passage.text for passage in answer.passages)


@hybrid
def test_a_broken_collection_is_made_anew_from_the_cache_of_vectors(library: Library, home: Path) -> None:
    library.learn(KNOWN)
    (place,) = (home / "experience").glob("chroma-*")
    count = library._embedder.count if library._embedder else 0
    (place / "chroma.sqlite3").write_bytes(b"no database")
    assert library.recall("cumsum", KNOWN).mode == "hybrid"
    assert library._embedder and library._embedder.count == count + 1, "the question alone was embedded"
    assert len(texts(home)) == 3


@pytest.mark.long
@hybrid
def test_a_dead_model_leaves_words_and_says_so(corpus: Path, tmp_path: Path) -> None:
    with Library.open(tmp_path, "hybrid", corpus=corpus) as library:
        assert library._embedder is not None
        os.kill(library._embedder.pid, signal.SIGKILL)  # type: ignore[attr-defined]
        found = library.recall("cumsum", KNOWN)
    assert (found.mode, found.experiences[0].id) == ("lexical", "scan")
    assert "the embedding process" in found.reason


@hybrid
def test_what_is_forgotten_leaves_the_collection(library: Library, home: Path) -> None:
    library.learn(KNOWN)
    forget(["tile"], home)
    assert not list((home / "experience").glob("chroma-*"))
    library.recall("cumsum", KNOWN[:1])
    assert texts(home) == [told(KNOWN[0])]
