"""What is left of a log: read on what gcc, nvcc, ptxas, Python and the judge really said."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kernel_agent.prompts.log_excerpt import CHARACTERS, excerpt

LOGS = Path(__file__).parent / "logs"


def said(name: str) -> str:
    return excerpt((LOGS / f"{name}.log").read_text(), (LOGS / f"{name}.py.txt").read_text())


def pointed(text: str) -> list[str]:
    return [row.partition(" | ")[2] for row in text.splitlines() if row.startswith("> ")]


def test_an_error_of_nvcc_points_at_the_candidate_s_own_line() -> None:
    text = said("nvcc_undeclared")
    assert text.startswith('cuda.cu(13): error: identifier "count" is undefined')
    assert "incompatible redefinition" not in text and "errors detected" not in text
    assert pointed(text) == ["  if (i < count) out[i] = x[i] * factor;", "  out[i] = v.x;"]
    assert "   11 |   float4 v = reinterpret_cast<const float4*>(x)[i]" in text, "the line before is the one to mend"


def test_a_line_that_a_macro_changed_is_found_by_its_distance_from_the_others() -> None:
    text = said("nvcc_template")
    assert "static_assert(256 % 96 == 0" in text
    assert [row.split("(")[0].strip() for row in pointed(text)] == [
        "out[threadIdx.x] = reduce<float, 4>",
        "static_assert",
        "rows<<<1, BLOCK>>>",
    ]
    assert 'note #3326-D: function template "reduce" does not match' in text


def test_notes_of_gcc_and_the_use_of_a_template_stay_with_their_error() -> None:
    text = said("gcc_template")
    assert text.index("main.cpp:17:23:   required from here") < text.index("error: no match for")
    assert "deduced conflicting types" in text
    assert len(pointed(text)) == 2


def test_what_has_no_line_is_kept_too() -> None:
    assert said("ptxas_shared").startswith("ptxas error   : Entry function '_Z4rowsPKfPf' uses too much shared data")


def test_a_traceback_keeps_the_candidate_s_frames_and_what_was_raised() -> None:
    text = said("run_python")
    assert text.startswith("on inputs as drawn:\n")
    assert "TypeError: Mismatched number of arguments" in text and "Expected 2 but got 3" in text
    assert "torch/nn/modules" not in text and "/srv/judge" not in text
    assert pointed(text) == ["        kernel.run(x, out, BLOCK)"]


def test_a_crash_leaves_out_the_interpreter_s_stack() -> None:
    text = said("run_segv")
    assert "killed by SIGSEGV" in text and "in run(tvm::ffi::TensorView" in text
    assert "ceval" not in text and len(text.splitlines()) <= 3


def test_a_mismatch_is_told_whole() -> None:
    assert said("wrong_tail") == (LOGS / "wrong_tail.log").read_text().strip()


def test_only_the_first_errors_are_kept_and_the_rest_counted() -> None:
    rows = [f"a.cu({n}): error: no {n}\n    int x{n} = y;\n        ^" for n in range(1, 40)]
    text = excerpt("\n".join(["a.cu(1): warning #1: noise", *rows]), "x")
    assert "error: no 4" in text and "error: no 5" not in text and "noise" not in text
    assert "... and 35 more errors" in text


@pytest.mark.parametrize("log", ["", "\n\n", "z" * 100_000, "word\n" * 20_000, "a(1): error: " + "b" * 50_000, "e\0"])
def test_any_text_is_cut_to_a_bound(log: str) -> None:
    assert len(excerpt(log, "a\nb")) <= CHARACTERS + 100


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_the_compiler_of_this_machine_is_understood(tmp_path: Path) -> None:
    code = "#include <cstdint>\nvoid run(float* x) {\n  for (int64_t i = 0; i < size; ++i) x[i] = 0;\n}\n"
    (tmp_path / "main.cpp").write_text("// a header of others\n" * 7 + code)
    done = subprocess.run(["g++", "-c", "main.cpp"], cwd=tmp_path, capture_output=True, text=True)
    text = excerpt(done.stderr, f'import torch\n\nSOURCE = r"""\n{code}"""\n')
    assert "error: " in text and "size" in text
    assert pointed(text) == ["  for (int64_t i = 0; i < size; ++i) x[i] = 0;"]
