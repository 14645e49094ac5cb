import os
import subprocess
import sys
from pathlib import Path

import pytest

from rag.documents.page import Page
from rag.errors import LibraryError
from rag.index import lexical
from rag.index.lexical import LexicalIndex
from rag.index.terms import words
from tests.support.paths import ROOT


def build(path: Path, *pages: Page) -> LexicalIndex:
    lexical.write(path, pages)
    return LexicalIndex(path)


def test_identifiers_are_kept_whole_and_split() -> None:
    assert list(words("__shfl_xor_sync cudaLimitPersistingL2CacheSize")) == [
        *("shfl_xor_sync", "shfl", "xor", "sync"),
        *("cudalimitpersistingl2cachesize", "cuda", "limit", "persist", "2", "cach", "siz"),
    ]
    assert "ld_global_nc" in set(words("use ld.global.nc here"))


def test_word_forms_meet() -> None:
    for forms in [
        "coalesced coalescing coalesces",
        "vectorized vectorization vectorize",
        "reduction reductions reduce",
        "fused fusing fuse fuses",
        "stalls stalled stall",
    ]:
        assert len(set(words(forms))) == 1, list(words(forms))


def test_stop_words_and_punctuation_are_no_terms() -> None:
    assert list(words("what is the ... of it?")) == []


def test_equal_scores_fall_by_chunk_id_whatever_the_order_of_writing(tmp_path: Path) -> None:
    pages = [Page(name, "Same", f"docs/{name}.md", "equal words here\n") for name in "cab"]
    one, two = build(tmp_path / "1", *pages), build(tmp_path / "2", *reversed(pages))
    hits = one.search("equal words", "abc", 3)
    assert hits == two.search("equal words", "abc", 3)
    assert [name for name, _ in hits] == sorted(name for name, _ in hits)
    assert len({score for _, score in hits}) == 1
    one.close()
    two.close()


def test_only_the_allowed_pages_are_searched(tmp_path: Path) -> None:
    index = build(tmp_path / "1", *(Page(name, "Same", f"docs/{name}.md", "equal words\n") for name in "abc"))
    hits = index.search("equal", ["b"], 3)
    assert set(index.pages_of(name for name, _ in hits).values()) == {"b"}
    index.close()


@pytest.mark.parametrize("damage", ["garbage", "truncated", "empty", "missing"])
def test_a_damaged_file_is_an_error_in_words(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "index.sqlite"
    build(path, Page("a", "A", "docs/a.md", "words\n" * 2000)).close()
    data = path.read_bytes()
    path.unlink()
    if damage != "missing":
        broken = {"garbage": b"x" * len(data), "truncated": data[: len(data) // 2], "empty": b""}
        path.write_bytes(broken[damage])
    with pytest.raises(LibraryError, match=r"the index .*index\.sqlite"):
        LexicalIndex(path)


TOGETHER = """
import sys, threading
from pathlib import Path
from rag.errors import LibraryError
from rag.index.lexical import LexicalIndex

index, odd = LexicalIndex(Path(sys.argv[1])), []

def ask():
    try:
        for _ in range(400):
            index.pages_of(["a", "b"])
            index.search("word", ["page"], 5)
    except LibraryError as closed:
        assert "closed" in str(closed), closed
    except BaseException as fault:
        odd.append(repr(fault))

threads = [threading.Thread(target=ask) for _ in range(8)]
for thread in threads:
    thread.start()
threads[0].join()
index.close()
for thread in threads[1:]:
    thread.join()
print(odd)
"""


def test_threads_may_share_an_index_and_one_of_them_close_it(tmp_path: Path) -> None:
    """In a process of its own, which a connection misused takes down."""
    build(tmp_path / "index.sqlite", Page("page", "A page", "docs/page.md", "Word after word.\n")).close()
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", TOGETHER, str(tmp_path / "index.sqlite")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
