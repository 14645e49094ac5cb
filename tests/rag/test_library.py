import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from rag import Library, LibraryError, Query
from rag.__main__ import main

Python = Callable[[str], list[str]]


@pytest.fixture
def library(corpus: Path, tmp_path: Path) -> Library:
    return Library.open(tmp_path / "cache", "lexical", corpus=corpus)


def found(library: Library, *args: object, **keys: object) -> list[str]:
    answer = library.search(Query(*args, **keys))  # type: ignore[arg-type]
    return [passage.page for passage in answer.passages]


def test_the_answer_says_which_mode_answered_and_the_library_says_why(library: Library) -> None:
    with library:
        answer = library.search(Query("arrays of structs"))
        assert (answer.mode, library.mode, library.mode_reason) == (
            *("lexical", "lexical"),
            "lexical retrieval was asked for",
        )
        [passage] = answer.passages
        assert (passage.page, passage.heading, passage.source) == ("coalescing", "Trap", "docs/coalescing.md")
        assert passage.text == "Arrays of structs waste sectors."
        assert passage.archs == ("sm_70+",)
        assert set(passage.scores) == {"sheet", "bm25", "rrf", "tags", "score"}


def test_a_passage_is_found_again_by_its_id_and_an_unknown_one_is_left_out(library: Library) -> None:
    with library:
        [passage] = library.search(Query("arrays of structs")).passages
        [again] = library.passages(["unknown", passage.id])
    assert (again.id, again.text, again.source) == (passage.id, passage.text, passage.source)


def test_a_metric_name_finds_the_page_that_lists_it(library: Library) -> None:
    with library:
        assert found(library, "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum is high")[0] == "coalescing"


def test_no_page_of_another_architecture_or_language_is_served(library: Library) -> None:
    with library:
        text = "matrix product of rows in tensor memory"
        assert found(library, text, arch="sm_90", language="cuda") == ["wgmma"]
        assert found(library, text, arch="sm_100", language="cuda") == ["tcgen05"]
        assert found(library, text, arch="sm_80", language="cuda") == []
        assert found(library, text, arch="x86_64-avx2", language="cpp") == []
        assert found(library, text, arch="x86_64-avx2", language="cpp", kinds=("kernel",)) == ["softmax/level_01"]


def test_a_query_without_words_is_searched_by_its_tags(library: Library) -> None:
    with library:
        assert (
            found(library, "", families=("softmax",), bottleneck="dram-bw", kinds=("page", "kernel"))[0]
            == "softmax/level_01"
        )


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (Query("the ..."), "holds no word to search for"),
        (Query("x", arch="hopper"), "unknown architecture"),
        (Query("x", language="fortran"), "unknown language"),
        (Query("x", families=("matmul",)), "unknown family"),
        (Query("x", bottleneck="memory"), "unknown bottleneck"),
        (Query("x", kinds=("book",)), "unknown kind"),  # type: ignore[arg-type]
    ],
)
def test_a_query_that_cannot_be_meant_is_refused_in_words(library: Library, query: Query, said: str) -> None:
    with library, pytest.raises(LibraryError, match=said):
        library.search(query)


def test_equal_questions_get_equal_answers_from_indexes_built_apart(corpus: Path, tmp_path: Path) -> None:
    answers = []
    for cache in ("one", "two"):
        with Library.open(tmp_path / cache, "lexical", corpus=corpus) as library:
            answers.append(library.search(Query("one hundred threads issue a matrix product")))
    assert answers[0] == answers[1]
    assert [passage.page for passage in answers[0].passages][:2] == ["wgmma", "tcgen05"]


def test_lexical_retrieval_imports_neither_torch_nor_chroma(corpus: Path, tmp_path: Path, python: Python) -> None:
    code = (
        "from pathlib import Path; from rag import Library, Query\n"
        f"with Library.open(Path({str(tmp_path / 'cache')!r}), 'lexical', corpus=Path({str(corpus)!r})) as library:\n"
        "    print(len(library.search(Query('structs')).passages))\n"
        "print([m for m in ('torch', 'chromadb', 'sentence_transformers', 'numpy') if m in sys.modules])"
    )
    result = subprocess.run(python(code), capture_output=True, text=True, check=True)
    assert result.stdout == "1\n[]\n"


def test_without_chroma_auto_is_lexical_and_says_so_and_hybrid_is_refused(
    corpus: Path, tmp_path: Path, python: Python
) -> None:
    code = (
        "sys.modules['chromadb'] = None\n"  # as import sees a package that is not installed
        "from pathlib import Path; from rag import Library, LibraryError, Query\n"
        f"cache, corpus = Path({str(tmp_path / 'cache')!r}), Path({str(corpus)!r})\n"
        "with Library.open(cache, corpus=corpus) as library:\n"
        "    print(library.mode, '|', library.mode_reason, '|', library.search(Query('structs')).mode)\n"
        "try: Library.open(cache, 'hybrid', corpus=corpus)\n"
        "except LibraryError as error: print(error)"
    )
    result = subprocess.run(python(code), capture_output=True, text=True, check=True)
    reason = "not installed: chromadb (pip install them for hybrid retrieval)"
    assert result.stdout.splitlines() == [
        f"lexical | {reason} | lexical",
        f"hybrid retrieval is not possible: {reason}",
    ]


def test_the_command_line_searches_the_shipped_corpus(tmp_path: Path, python: Python) -> None:
    code = (
        "from rag.__main__ import main\n"
        f"options = ['--cache', {str(tmp_path)!r}, '--mode', 'lexical']\n"
        "sys.exit(main([*options, 'search', 'softmax in one pass over memory', '--arch', 'sm_90'])"
        " or main([*options, 'status']) or main([*options, 'build']))"
    )
    result = subprocess.run(python(code), capture_output=True, text=True, check=True)
    assert "passages, lexical (lexical retrieval was asked for)" in result.stdout
    assert "1. Softmax in one pass over memory" in result.stdout
    assert "up to date" in result.stdout


def test_the_command_line_ends_with_one_sentence_where_it_cannot_go_on(tmp_path: Path, python: Python) -> None:
    code = (
        "from rag.__main__ import main\n"
        f"sys.exit(main(['--cache', {str(tmp_path)!r}, '--mode', 'lexical', 'search', 'x', '--arch', 'y']))"
    )
    result = subprocess.run(python(code), capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith("rag: unknown architecture 'y'")


def test_a_search_gives_a_script_the_passages_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "--cache",
        str(tmp_path),
        "--mode",
        "lexical",
        "search",
        "coalesced loads",
        "--limit",
        "2",
        "--json",
    ]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["mode"] == "lexical" and len(found["passages"]) == 2
    assert all(passage["id"] and passage["source"] and passage["text"] for passage in found["passages"])
