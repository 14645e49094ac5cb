"""What is left of a log: read on what Python and the judge really said."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_agent.prompts.log_excerpt import CHARACTERS, excerpt
from kernel_agent.run.types import Diagnostic, Evaluation, Status

LOGS = Path(__file__).parent / "logs"


def said(name: str) -> str:
    log, source = ((LOGS / f"{name}{suffix}").read_text() for suffix in (".log", ".py.txt"))
    return excerpt(Evaluation(Status.RUN_ERROR, log), source)


def pointed(text: str) -> list[str]:
    return [row.partition(" | ")[2] for row in text.splitlines() if row.startswith("> ")]


def test_of_a_compilers_errors_the_first_are_told_with_the_lines_they_point_at() -> None:
    source = "\n".join(f"int x{n} = y{n};" for n in range(1, 60))
    errors = tuple(
        Diagnostic("error", f"no {n}", "a.cu", n + 7, f"int x{n} = y{n};", n, (f"a.cu({n}): note: see",))
        for n in range(2, 40, 3)
    )
    text = excerpt(Evaluation(Status.BUILD_ERROR, "a.cu(1): warning: noise", diagnostics=errors), source)
    assert text.startswith("a.cu:9: error: no 2\n    int x2 = y2;\na.cu(2): note: see\n")
    assert "error: no 11" in text and "error: no 14" not in text and "noise" not in text
    assert "... and 9 more errors" in text
    assert pointed(text) == [f"int x{n} = y{n};" for n in (2, 5, 8, 11)]


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


@pytest.mark.parametrize("log", ["", "\n\n", "z" * 100_000, "word\n" * 20_000, "a(1): error: " + "b" * 50_000, "e\0"])
def test_any_text_is_cut_to_a_bound(log: str) -> None:
    for errors in ((), (Diagnostic("error", log, notes=(log,)),)):
        assert len(excerpt(Evaluation(Status.BUILD_ERROR, log, diagnostics=errors), "a\nb")) <= CHARACTERS + 100
