import contextlib
import re
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rag import Library, LibraryError, Query
from rag.index import build

Python = Callable[[str], list[str]]

OPEN = """
from pathlib import Path; from rag import Library, Query
def progress(line):
    print(line, flush=True)
    {pause}
sys.stdin.readline()
with Library.open(Path({cache!r}), 'lexical', progress, Path({corpus!r})) as library:
    print([p.id for p in library.search(Query('matrix product')).passages], flush=True)
"""


def opened(cache: Path, corpus: Path) -> list[str]:
    """Open, ask once, close; what was said meanwhile."""
    said: list[str] = []
    with Library.open(cache, "lexical", said.append, corpus) as library:
        assert len(library.search(Query("matrix product")).passages) == 2
    return said


def counted(said: list[str]) -> list[int]:
    """The numbers of pages, pages and chunks that building tells; tests/rag/retrieval/test_hybrid.py has its words."""
    return [int(number) for number in re.findall(r"\d+", " ".join(said))]


def index_of(cache: Path) -> Path:
    [path] = (cache / "generations").glob("*/index.sqlite")
    return path


def test_the_index_is_built_at_first_use_and_reused_after(corpus: Path, tmp_path: Path) -> None:
    assert counted(opened(tmp_path / "cache", corpus)) == [4, 4, 8]
    assert opened(tmp_path / "cache", corpus) == []


def test_a_changed_page_makes_a_new_generation_while_the_old_one_still_serves(corpus: Path, tmp_path: Path) -> None:
    old = Library.open(tmp_path / "cache", "lexical", corpus=corpus)
    page = corpus / "docs/coalescing.md"
    page.write_text(page.read_text() + "\n## Matrix\nA sparrow sings.\n")
    new = Library.open(tmp_path / "cache", "lexical", corpus=corpus)
    with old, new:
        assert [p.heading for p in new.search(Query("sparrow")).passages] == ["Matrix"]
        assert old.search(Query("sparrow")).passages == ()
        assert len(old.search(Query("matrix product")).passages) == 2


@pytest.mark.parametrize("damage", [b"x" * 40000, b"", b"SQLite format 3\0 and no more"])
def test_a_corrupt_index_is_rebuilt_with_a_message(corpus: Path, tmp_path: Path, damage: bytes) -> None:
    opened(tmp_path / "cache", corpus)
    index_of(tmp_path / "cache").write_bytes(damage)
    said = opened(tmp_path / "cache", corpus)
    assert said[0].startswith("the index ") and said[0].endswith("rebuilding it")
    assert counted(said[1:]) == [4, 4, 8]
    assert opened(tmp_path / "cache", corpus) == []


def test_an_index_that_fails_only_in_a_search_is_an_error_and_build_remakes_it(corpus: Path, tmp_path: Path) -> None:
    opened(tmp_path, corpus)
    with contextlib.closing(sqlite3.connect(index_of(tmp_path))) as base, base:
        base.execute("DELETE FROM words_data WHERE id > 10")  # sound pages, but half a full-text index
    with (
        Library.open(tmp_path, "lexical", corpus=corpus) as library,
        pytest.raises(LibraryError, match=r"is broken .* `python -m rag build` remakes it"),
    ):
        library.search(Query("matrix product"))
    build.discard(tmp_path, build.read(corpus), print)
    assert counted(opened(tmp_path, corpus)) == [4, 4, 8]


def test_two_processes_building_at_once_make_one_index(corpus: Path, tmp_path: Path, python: Python) -> None:
    code = OPEN.format(cache=str(tmp_path / "cache"), corpus=str(corpus), pause="")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    both = [subprocess.Popen(python(code), **pipes) for _ in range(2)]  # type: ignore[call-overload]
    for process in both:
        process.stdin.write("\n")
        process.stdin.flush()
    lines = [process.communicate()[0].splitlines() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert lines[0][-1] == lines[1][-1]
    assert sum(line.startswith("indexed") for said in lines for line in said) == 1


def test_after_kill_9_in_the_middle_of_a_build_the_next_opening_works(
    corpus: Path, tmp_path: Path, python: Python
) -> None:
    cache = tmp_path / "cache"
    code = OPEN.format(cache=str(cache), corpus=str(corpus), pause="sys.stdin.readline()")
    with subprocess.Popen(python(code), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "indexing 4 pages\n"
        assert list((cache / "generations").glob("*.partial"))
        process.kill()
    assert counted(opened(cache, corpus)) == [4, 4, 8]
    assert not list((cache / "generations").glob("*.partial"))


def test_a_build_waits_for_the_other_writer_and_says_so(corpus: Path, tmp_path: Path, python: Python) -> None:
    code = OPEN.format(cache=str(tmp_path), corpus=str(corpus), pause="")
    with build.writer(tmp_path, print):
        process = subprocess.Popen(python(code), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdin and process.stdout
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "another process is building the index; waiting for it\n"
    assert "indexed 4 pages" in process.communicate()[0]


def test_a_file_without_front_matter_stops_the_build_with_its_name(corpus: Path, tmp_path: Path) -> None:
    (corpus / "docs/bare.md").write_text("# No front matter\n")
    with pytest.raises(LibraryError, match=r"^docs/bare\.md: no front matter"):
        Library.open(tmp_path / "cache", "lexical", corpus=corpus)


def test_a_file_that_is_there_twice_counts_once(corpus: Path) -> None:
    (corpus / "kernels/norm").mkdir()
    (corpus / "kernels/norm/level_01.cpp").write_bytes((corpus / "kernels/softmax/level_01.cpp").read_bytes())
    assert [page.path for page in build.read(corpus).pages() if page.is_code] == ["kernels/norm/level_01.cpp"]


def test_twin_ids_and_binary_files_stop_the_build(corpus: Path) -> None:
    (corpus / "docs/twin.md").write_text((corpus / "docs/wgmma.md").read_text() + "\nMore.\n")
    with pytest.raises(LibraryError, match=r"^docs/wgmma\.md: the id 'wgmma' is already that of docs/twin\.md"):
        build.read(corpus).pages()
    (corpus / "docs/twin.md").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(LibraryError, match=r"^docs/twin\.md is not text"):
        build.read(corpus).pages()


def test_no_corpus_and_no_place_for_the_index_are_errors_in_words(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(LibraryError, match="there is no corpus in"):
        Library.open(tmp_path / "cache", "lexical", corpus=tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(LibraryError, match="is not writable"):
        Library.open(tmp_path / "file" / "cache", "lexical", corpus=corpus)
    too_long = tmp_path.joinpath(*["x" * 200] * 4)
    with pytest.raises(LibraryError, match=f"cannot be written in {too_long}.* set XDG_CACHE_HOME"):
        Library.open(too_long, "lexical", corpus=corpus)
