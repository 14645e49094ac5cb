import contextlib
import time
from pathlib import Path

import pytest

from rag.documents.chunk import CAP, chunks, functions, tokens
from rag.documents.page import Page
from rag.documents.readers import UnreadableError, read
from rag.index.terms import words
from rag.retrieval.plan import plain_error

CUDA = """// What it does.
#include <cuda.h>
constexpr int BLOCK = 128;

namespace {
// Reduce over a warp { not a brace }
template <typename T>
__device__ T warp_max(T v) {
  for (int i = 16; i; i >>= 1) { v = max(v, __shfl_xor_sync(~0u, v, i)); }
  return v;
}

struct Pair { float m, d; };

constexpr int K = 4;
__global__ void __launch_bounds__(BLOCK) softmax(const float* x) {
  const char* s = "}";  // }
  if (x) { return; }
}
}  // namespace

extern "C" void run(float* x) { softmax<<<1, BLOCK>>>(x); }
"""


def page(body: str, path: str = "docs/a.md") -> Page:
    return Page("a", "A page", path, body, is_code=not path.endswith(".md"))


def test_prose_is_cut_by_heading_and_carries_the_path_of_headings() -> None:
    found = chunks(page("# A page\nintro\n## One\ntext\n### Deep\nmore\n## Two\nlast\n"))
    assert [(c.heading, c.text) for c in found] == [
        ("", "intro"),
        ("One", "text"),
        ("One > Deep", "more"),
        ("Two", "last"),
    ]
    assert found[2].embedded == "A page > One > Deep\nmore"


def test_a_fence_is_never_split_and_its_comments_are_no_headings() -> None:
    fence = "```cuda\n# not a heading\n\n" + "".join(f"int value_{i} = {i};\n\n" for i in range(60)) + "```"
    found = chunks(page(f"before\n\n{fence}\n\nafter\n"))
    assert [c.text for c in found] == ["before", fence, "after"]
    assert all(tokens(c.embedded) <= CAP for c in found)


def test_long_prose_is_cut_at_paragraphs_and_sentences_below_the_cap() -> None:
    sentences = [f"Sentence number {i} says a few plain words about memory." for i in range(80)]
    found = chunks(page(" ".join(sentences[:60]) + "\n\n" + " ".join(sentences[60:])))
    assert len(found) > 2
    assert all(tokens(c.embedded) <= CAP for c in found)
    assert " ".join(" ".join(c.text.split()) for c in found) == " ".join(sentences)


def test_a_long_table_is_cut_between_rows_and_each_part_has_its_head() -> None:
    rows = [f"| message {n}: such as this | its cause: a file that was left. Delete it. |" for n in range(60)]
    table = "\n".join(["| message | cause |", "|---|---|", *rows])
    cut = [
        one.text
        for one in chunks(page(f"# A\n\nBefore.\n\n## Errors\n\n{table}\n"))
        if "message 0" in one.text or "|" in one.text
    ]
    assert len(cut) > 2 and all(text.startswith("| message | cause |\n|---|---|\n") for text in cut)
    assert [row for text in cut for row in text.splitlines()[2:]] == rows


def test_code_is_cut_into_functions_with_their_comments_and_globals() -> None:
    found = functions(CUDA)
    assert [name for name, _, _ in found] == ["warp_max", "Pair", "softmax", "run"]
    texts = {name: CUDA[start:end] for name, start, end in found}
    assert texts["warp_max"].lstrip().startswith("// Reduce over a warp")
    assert "constexpr int K" in texts["softmax"]
    assert texts["run"].rstrip().endswith("}")


def test_a_kernel_hit_serves_a_short_file_whole_a_long_one_by_head_and_function() -> None:
    short = chunks(page(CUDA, "kernels/softmax/level_01.cu"))
    assert [c.heading for c in short] == ["", "warp_max", "Pair", "softmax", "run"]
    assert {c.text for c in short} == {CUDA.strip("\n")}
    long = chunks(page(CUDA + "// filler\n" * 800, "kernels/softmax/level_01.cu"))
    assert long[3].heading == "softmax"
    assert long[3].text.startswith("// What it does.\n#include <cuda.h>")
    assert "__launch_bounds__" in long[3].text
    assert "warp_max" not in long[3].text


def test_python_kernels_are_cut_at_top_level_definitions() -> None:
    source = "import triton\n\n@triton.jit\ndef kernel(x):\n    def inner(): ...\n    return x\n\ndef run(x): ...\n"
    assert [c.heading for c in chunks(page(source, "kernels/softmax/level_01.py"))] == ["", "kernel", "run"]


def test_python_that_defines_nothing_is_one_part() -> None:
    assert [part.text for part in chunks(page("import os\n", "a.py"))] == ["import os"]


def test_ids_depend_on_content_alone() -> None:
    first, again = chunks(page("text\n## B\nmore\n")), chunks(page("text\n## B\nmore\n"))
    changed = chunks(page("text\n## B\nother\n"))
    assert [c.id for c in first] == [c.id for c in again]
    assert first[0].id == changed[0].id
    assert first[1].id != changed[1].id


def test_a_page_s_signals_are_a_chunk_that_fits_and_serves_its_first_words() -> None:
    signals = tuple(f"smsp__average_warps_issue_stalled_reason_{n}.ratio" for n in range(60))
    card, first = chunks(Page("a", "A page", "docs/a.md", "# A page\nintro\n", signals=signals))
    assert (card.text, first.text) == ("intro", "intro")
    assert signals[0] in card.words and signals[0] not in first.words
    assert tokens(card.embedded) <= CAP


HOSTILE = {
    "a string without an end": ("a.cu", '"\\' * 200_000),
    "a comment without an end": ("a.cu", "/* " * 150_000),
    "a template without an end": ("a.cu", "template<" * 50_000 + "void f() {}"),
    "quotes of one": ("a.cu", "' " * 200_000),
    "decorators of nothing": ("a.py", "@x\n" * 150_000),
    "one heading": ("a.md", "# " * 200_000 + "x"),
    "one line": ("a.md", "word " * 100_000),
    "a build's log": ("a.md", "a" * 400_000),
    "elements left open": ("a.html", "<nav>" + "<b>" * 50_000 + "</b>" * 50_000 + "</nav>text" + "</i>" * 50_000),
    "elements left open in what is skipped": ("a.html", "<nav>" + "<b>" * 50_000 + "</i>" * 50_000 + "</nav>"),
}


@pytest.mark.parametrize(("name", "text"), HOSTILE.values(), ids=HOSTILE.keys())
def test_no_text_takes_the_square_of_its_length(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    began = time.process_time()
    with contextlib.suppress(UnreadableError):
        for part in read(tmp_path / name):
            page = Page("x", part.title, name, part.body, is_code=part.is_code)
            for chunk in chunks(page):
                list(words(chunk.words))
    plain_error(f"error: {text}")
    assert time.process_time() - began < 30.0
