"""Own documents that change: the new generation is grown from the old one by what differs, and equals one made anew."""

import contextlib
import hashlib
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from rag import Library, Query
from rag.documents.page import Page
from rag.embeddings.config import EmbeddingConfig
from rag.embeddings.local import EmbeddingModel, missing
from rag.index import build, chroma, dense, lexical
from rag.index.collection import Collection
from rag.index.lexical import LexicalIndex
from rag.index.user_documents import Record, Tags

Python = Callable[[str], list[str]]
needs_chroma = pytest.mark.skipif(missing("chromadb") is not None, reason="chromadb is not installed")


class Hashes:
    """Embeds by hash: as good as a model wherever only equal texts must meet."""

    model = EmbeddingModel("hashes", Path())
    count = 0

    def embed(self, texts: Sequence[str], asked: bool = False) -> list[bytes]:
        self.count += len(texts)
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> bytes:
        digest = hashlib.sha512(text.encode()).digest()
        numbers = np.frombuffer(digest, "<u1").astype("<f4") - 127
        return bytes((numbers / np.linalg.norm(numbers)).tobytes())

    def close(self) -> None:
        pass


def grown(cache: Path, documents: Path, embedder: Hashes | None) -> list[str]:
    """Add and index; what was said."""
    said: list[str] = []
    with build.writer(cache, said.append):
        with contextlib.closing(Record(cache)) as record:
            list(record.add(documents, Tags()))
        said.append(build.grow(cache, embedder, EmbeddingConfig(), said.append, embed=True))
    return said


def serving(cache: Path) -> Path:
    with contextlib.closing(Record(cache)) as record:
        assert record.serving
        return record.serving


def answers(generation: Path) -> list[list[tuple[str, float]]]:
    """What a generation's indexes find, and how well."""
    with contextlib.closing(LexicalIndex(generation / "index.sqlite")) as index:
        pages = sorted(index.cards)
        found = [index.search(text, pages, 99) for text in ("tile", "heron 7", "cormorant", "swallow")]
        found += [index.search_pages(text, pages, 99) for text in ("tile", "heron 7", "cormorant", "swallow")]
        where = chroma.place(generation, "hashes", EmbeddingConfig())
        if where.path.is_dir():
            with contextlib.closing(dense.DenseIndex(where, index.size)) as vectors:
                for text in ("tile", "heron 7"):
                    found.append(vectors.search(Hashes()._vector(text), index.ids(pages), 99))
    return found


def write(documents: Path, count: int) -> Path:
    documents.mkdir(exist_ok=True)
    for n in range(count):
        text = f"# Notes {n}\nA heron {n} and a tile.\n## Part\nTile {n % 3} again, herons {n}.\n"
        (documents / f"{n}.md").write_text(text)
    return documents


def change(documents: Path) -> None:
    (documents / "new.md").write_text("# New\nA cormorant tile.\n")
    (documents / "3.md").write_text("# Notes 3\nA swallow, no more herons.\n## Part\nTile 0 again, herons 3.\n")
    (documents / "5.md").unlink()


@needs_chroma
def test_a_grown_generation_equals_one_made_anew_and_embeds_only_what_is_new(tmp_path: Path) -> None:
    documents, embedder = write(tmp_path / "documents", 40), Hashes()
    assert grown(tmp_path / "one", documents, embedder)[-1] == "found by words and vectors"
    before, old = serving(tmp_path / "one"), answers(serving(tmp_path / "one"))
    change(documents)
    embedder.count = 0
    grown(tmp_path / "one", documents, embedder)
    assert embedder.count == 2
    grown(tmp_path / "two", documents, Hashes())
    assert serving(tmp_path / "one") != before
    assert answers(serving(tmp_path / "one")) == answers(serving(tmp_path / "two"))
    assert answers(before) == old


@needs_chroma
def test_an_index_of_which_more_was_deleted_than_is_left_is_made_anew(tmp_path: Path) -> None:
    def store() -> str:
        [directory] = [p for p in (serving(cache) / "chroma-hashes").iterdir() if p.is_dir()]
        return directory.name

    cache, documents = tmp_path / "cache", write(tmp_path / "documents", 40)
    grown(cache, documents, Hashes())
    first = store()
    stores = []
    for n in range(40, 40 + 3 * 9, 9):
        for k in range(9):
            (documents / f"{n - 40 + k}.md").unlink()
            (documents / f"{n + k}.md").write_text(f"# Notes {n + k}\nA heron {n + k} and a tile.\n")
        grown(cache, documents, Hashes())
        stores.append(store())
    assert stores[0] == first
    assert stores[-1] != first


@needs_chroma
@pytest.mark.parametrize("damage", ["index.sqlite", "chroma-hashes/chroma.sqlite3"])
def test_from_a_broken_generation_nothing_grows(tmp_path: Path, damage: str) -> None:
    documents = write(tmp_path / "documents", 20)
    grown(tmp_path / "one", documents, Hashes())
    (serving(tmp_path / "one") / damage).write_bytes(b"x" * 9000)
    change(documents)
    assert grown(tmp_path / "one", documents, Hashes())[-1] == "found by words and vectors"
    grown(tmp_path / "two", documents, Hashes())
    assert answers(serving(tmp_path / "one")) == answers(serving(tmp_path / "two"))


@needs_chroma
def test_what_a_killed_growth_left_is_no_part_of_the_next(tmp_path: Path, python: Python) -> None:
    cache, documents = tmp_path / "cache", write(tmp_path / "documents", 20)
    grown(cache, documents, Hashes())
    before, old = serving(cache), answers(serving(cache))
    change(documents)
    code = (
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from pathlib import Path; import contextlib; from test_growth import *\n"
        f"cache = Path({str(cache)!r})\n"
        "def progress(line):\n"
        "    print(line, flush=True)\n"
        "    if line.startswith('embedded'): sys.stdin.readline()\n"
        "with build.writer(cache, progress):\n"
        "    with contextlib.closing(Record(cache)) as record:\n"
        f"        list(record.add(Path({str(documents)!r}), Tags()))\n"
        "    build.grow(cache, Hashes(), EmbeddingConfig(), progress, embed=True)"
    )
    with subprocess.Popen(python(code), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert any(line.startswith("embedded 2") for line in process.stdout)
        process.send_signal(signal.SIGKILL)
    assert serving(cache) == before
    assert answers(before) == old
    [left] = [p for p in before.parent.iterdir() if p != before]
    shutil.copytree(before / "chroma-hashes", left / "chroma-hashes.partial")  # as if killed a little later
    assert grown(cache, documents, Hashes())[-1] == "found by words and vectors"
    grown(tmp_path / "two", documents, Hashes())
    assert answers(serving(cache)) == answers(serving(tmp_path / "two"))


def test_a_lexical_index_brought_up_to_date_holds_just_what_it_should(tmp_path: Path) -> None:
    def page(name: str, body: str) -> Page:
        return Page(name, f"Title {name}", f"{name}.md", body)

    old = [page("a", "a heron\n"), page("b", "b heron\n\nb heron\n"), page("c", "c swallow\n")]
    new = [page("c", "c swallow\n"), page("b", "b swallow\n"), page("d", "d heron\n")]
    assert lexical.write(tmp_path / "one", old) == 3
    assert lexical.write(tmp_path / "one", new) == lexical.write(tmp_path / "two", new) == 3
    with (
        contextlib.closing(LexicalIndex(tmp_path / "one")) as one,
        contextlib.closing(LexicalIndex(tmp_path / "two")) as two,
    ):
        assert one.cards == two.cards
        assert one.embedded() == two.embedded()
        for text in ("heron", "swallow", "title"):
            assert one.search(text, "bcd", 9) == two.search(text, "bcd", 9)
            assert one.search_pages(text, "bcd", 9) == two.search_pages(text, "bcd", 9)


@needs_chroma
def test_an_open_library_goes_over_to_what_was_added_or_removed_since(tmp_path: Path, corpus: Path) -> None:
    def found(text: str) -> set[str]:
        answer = library.search(Query(text, kinds=("own",)))
        assert answer.mode == "hybrid", library.mode_reason
        return {Path(passage.source).name for passage in answer.passages}

    cache, documents = tmp_path / "cache", tmp_path / "documents"
    with Library(cache, [], Hashes(), "", EmbeddingConfig(), must=True) as library:
        library._shelves = [Collection(build.open_lexical(cache, build.read(corpus), print))]
        assert found("heron") == set()
        grown(cache, write(documents, 1), Hashes())
        assert found("heron") == {"0.md"}
        for n in range(3):
            (documents / f"new{n}.md").write_text(f"# New\nCormorant {n}.\n")
            grown(cache, documents, Hashes())
        assert "new2.md" in found("cormorant 2")
        shutil.rmtree(documents)
        documents.mkdir()
        grown(cache, documents, Hashes())
        assert found("heron") == set()
