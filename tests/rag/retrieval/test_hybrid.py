"""Real Chroma and the real MiniLM in its child process. A load of the model takes some seconds."""

import os
import select
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from rag import Library, LibraryError, Query
from rag.documents.chunk import chunks
from rag.embeddings.config import EmbeddingConfig
from rag.embeddings.local import Embedder, EmbeddingModel, packaged_model
from rag.index import build, dense, shipped_vectors

Python = Callable[[str], list[str]]
Writer = Callable[[Path], Path]

pytestmark = pytest.mark.skipif(isinstance(packaged_model(), str), reason="the embedding model is not installed")


def model() -> EmbeddingModel:
    found = packaged_model()
    assert isinstance(found, EmbeddingModel)
    return found


@pytest.fixture(scope="module")
def built(
    tmp_path_factory: pytest.TempPathFactory, python: Python, write_corpus: Writer
) -> tuple[Path, Path, list[str]]:
    """(cache, corpus, output) of a first hybrid use in a process without any network, where that can be had."""
    root = tmp_path_factory.mktemp("hybrid")
    corpus, cache = write_corpus(root / "corpus"), root / "cache"
    code = (
        "from pathlib import Path; from rag import Library, Query\n"
        f"with Library.open(Path({str(cache)!r}), 'hybrid', print, Path({str(corpus)!r})) as library:\n"
        "    answer = library.search(Query('sectors wasted by an array of records', arch='sm_90'))\n"
        "    print(answer.mode, [p.page for p in answer.passages], sorted(answer.passages[0].scores))\n"
        "print('torch' in sys.modules)"
    )
    alone = (
        ["unshare", "-rn"] if subprocess.run(["unshare", "-rn", "true"], capture_output=True).returncode == 0 else []
    )
    result = subprocess.run([*alone, *python(code)], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return cache, corpus, result.stdout.splitlines()


@pytest.fixture
def copy(built: tuple[Path, Path, list[str]], tmp_path: Path) -> tuple[Path, Path]:
    cache, corpus, _ = built
    shutil.copytree(cache, tmp_path / "cache")
    shutil.copytree(corpus, tmp_path / "corpus")
    return tmp_path / "cache", tmp_path / "corpus"


@pytest.fixture(scope="module")
def child() -> Iterator[Embedder]:
    child = Embedder(model())
    yield child
    child.close()


@pytest.fixture
def embedder(child: Embedder) -> Embedder:
    child.count = 0
    return child


def test_hybrid_answers_without_a_network_and_without_torch_in_the_parent(
    built: tuple[Path, Path, list[str]],
) -> None:
    *said, answer, torch = built[2]
    assert said == [
        "indexing 4 pages",
        "indexed 4 pages in 8 chunks",
        "embedding 0 of 8 chunks",
        "embedded 8 chunks, 0 were known",
    ]
    assert answer == "hybrid ['coalescing', 'wgmma'] ['bm25', 'dense', 'rrf', 'score', 'sheet', 'tags']"
    assert torch == "False"


def test_an_unchanged_corpus_costs_no_embedding(copy: tuple[Path, Path], embedder: Embedder) -> None:
    cache, corpus = copy
    said: list[str] = []
    index = build.open_lexical(cache, build.read(corpus), said.append)
    build.open_dense(cache, index, embedder, EmbeddingConfig(), said.append, None).close()
    index.close()
    assert (embedder.count, said) == (0, [])


@pytest.mark.long
def test_a_first_run_embeds_only_what_the_corpus_ships_no_vector_of(
    corpus: Path, tmp_path: Path, embedder: Embedder
) -> None:
    assert build.refresh(tmp_path / "one", embedder, print, corpus) == (8, 8)
    assert build.refresh(tmp_path / "one", embedder, print, corpus) == (8, 0)
    page = corpus / "docs/wgmma.md"
    page.write_text(page.read_text() + "\n## Fence\nOrder register accesses before the first product.\n")
    embedder.count = 0
    said: list[str] = []
    index = build.open_lexical(tmp_path / "two", build.read(corpus), said.append)
    build.open_dense(tmp_path / "two", index, embedder, EmbeddingConfig(), said.append, corpus).close()
    index.close()
    assert (embedder.count, said[-1]) == (1, "embedded 1 chunks, 8 were known")
    assert build.refresh(tmp_path / "two", embedder, print, corpus) == (9, 1)
    assert embedder.count == 1


@pytest.mark.long
def test_broken_shipped_vectors_cost_time_and_are_named(
    copy: tuple[Path, Path], tmp_path: Path, embedder: Embedder
) -> None:
    cache, corpus = copy
    path = shipped_vectors.file(corpus, embedder.model.id)
    path.parent.mkdir()
    path.write_bytes(b"PK no archive")
    (cache / "vectors.sqlite").unlink()
    said: list[str] = []
    index = build.open_lexical(tmp_path / "new", build.read(corpus), said.append)
    build.open_dense(tmp_path / "new", index, embedder, EmbeddingConfig(), said.append, corpus).close()
    index.close()
    assert any(line.startswith(f"the shipped vectors {path} are broken") for line in said)
    assert said[-1] == "embedded 8 chunks, 0 were known"
    assert build.refresh(tmp_path / "new", embedder, said.append, corpus) == (8, 8)


@pytest.mark.long
def test_shipped_vectors_are_the_model_s_but_for_a_stable_rounding(
    corpus: Path, tmp_path: Path, embedder: Embedder
) -> None:
    build.refresh(tmp_path, embedder, print, corpus)
    texts = {dense.key(c.embedded): c.embedded for p in build.read(corpus).pages() for c in chunks(p)}
    path = shipped_vectors.file(corpus, embedder.model.id)
    written, kept = path.read_bytes(), shipped_vectors.read(path, texts)
    build.refresh(tmp_path / "other", embedder, print, corpus)
    assert path.read_bytes() == written
    for key, text in texts.items():
        one, two = (np.frombuffer(vector, "<f4") for vector in (kept[key], embedder.embed([text])[0]))
        assert one @ two > 0.9999 * np.linalg.norm(one)


def test_a_broken_vector_index_is_rebuilt_from_the_cached_vectors(copy: tuple[Path, Path], embedder: Embedder) -> None:
    cache, corpus = copy
    [store] = (cache / "generations").glob("*/chroma-*")
    (store / "chroma.sqlite3").write_bytes(b"x" * 5000)
    said: list[str] = []
    index = build.open_lexical(cache, build.read(corpus), said.append)
    build.open_dense(cache, index, embedder, EmbeddingConfig(), said.append, None).close()
    index.close()
    assert said[0].startswith("the vector index ") and said[0].endswith("rebuilding it")
    assert said[1:] == ["embedded 0 chunks, 8 were known"]
    assert embedder.count == 0


@pytest.mark.long
def test_a_changed_page_costs_its_own_chunks_only(copy: tuple[Path, Path]) -> None:
    cache, corpus = copy
    page = corpus / "docs/wgmma.md"
    page.write_text(page.read_text() + "\n## Fence\nOrder register accesses before the first product.\n")
    said: list[str] = []
    with Library.open(cache, "hybrid", said.append, corpus) as library:
        assert said[-1] == "embedded 1 chunks, 8 were known"
        assert library.search(Query("order register accesses")).passages[0].heading == "Fence"


ROW, SAME, OTHER = "Keep the row in registers", "The row is kept in registers", "Sort keys with a radix pass"


def test_a_dead_child_turns_auto_lexical_and_is_an_error_for_hybrid(
    copy: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    cache, corpus = copy
    with Library.open(cache, "auto", corpus=corpus) as library:
        assert (library.mode, library.mode_reason) == ("hybrid", f"the model {model().id} embeds")
        near, far, itself = library.likeness(ROW, [SAME, OTHER, ROW])
        assert far < 0.5 < 0.9 < near <= itself == pytest.approx(1.0, abs=1e-5), "texts are likened by meaning"
        assert library.likeness(ROW, []) == []
        os.kill(_child_of(library), signal.SIGKILL)
        answer = library.search(Query("arrays of structs"))
        assert (answer.mode, answer.passages[0].page) == ("lexical", "coalescing")
        assert library.likeness(ROW, ["something else"]) == [] and library.mode == "lexical"
        assert "the embedding process ended (exit code -9)" in library.mode_reason
        assert "goes on without vectors" in caplog.text
    with Library.open(cache, "hybrid", corpus=corpus) as library:
        os.kill(_child_of(library), signal.SIGKILL)
        with pytest.raises(LibraryError, match=r"the embedding process ended \(exit code -9\)"):
            library.search(Query("arrays of structs"))


def test_texts_are_not_likened_without_vectors(copy: tuple[Path, Path]) -> None:
    cache, corpus = copy
    with Library.open(cache, "lexical", corpus=corpus) as library:
        assert library.likeness(ROW, [SAME]) == []


def _child_of(library: Library) -> int:
    assert isinstance(library._embedder, Embedder)
    return library._embedder.pid


def test_a_model_that_does_not_load_is_an_error_that_says_why(tmp_path: Path) -> None:
    child = Embedder(EmbeddingModel("none", tmp_path / "nowhere"))
    with pytest.raises(LibraryError, match=r"the embedding process ended \(exit code 1\): .*nowhere"):
        child.embed(["text"])
    child.close()


def test_the_child_dies_with_its_parent(python: Python) -> None:
    code = (
        "from rag.embeddings.local import Embedder, packaged_model\n"
        "child = Embedder(packaged_model()); print(child.pid, flush=True); sys.stdin.readline()"
    )
    with subprocess.Popen(python(code), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        child = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
    try:
        assert select.select([child], [], [], 60)[0], "the child outlived its parent by a minute"
    finally:
        os.close(child)


@pytest.mark.long
def test_after_kill_9_while_embedding_the_finished_batches_are_kept(
    corpus: Path, tmp_path: Path, python: Python
) -> None:
    cache = tmp_path / "cache"
    page = corpus / "docs/coalescing.md"
    page.write_text(page.read_text() + "".join(f"\n## Part {n}\nNumber {n} of many.\n" for n in range(20)))
    code = (
        "from pathlib import Path; from rag import Library\n"
        "def progress(line):\n"
        "    print(line, flush=True)\n"
        "    if line.startswith('embedding 16'): sys.stdin.readline()\n"
        f"Library.open(Path({str(cache)!r}), 'hybrid', progress, Path({str(corpus)!r}))"
    )
    with subprocess.Popen(python(code), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            if line.startswith("embedding 16"):
                break
        process.kill()
    said: list[str] = []
    with Library.open(cache, "hybrid", said.append, corpus) as library:
        assert said[-1] == "embedded 12 chunks, 16 were known"
        assert library.search(Query("number of many")).mode == "hybrid"
