"""What a person sees of a run: the lines, the live table, the final account."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from kernel_agent.cli import report
from kernel_agent.run.budget import Charge, Limits
from kernel_agent.run.events import (
    Charged,
    Confirmed,
    Confirming,
    Event,
    IdeaRecorded,
    Notice,
    Profiled,
    Progress,
    RoundStarted,
    RunOpened,
    RunStarted,
    TrialJudged,
    TrialStarted,
)
from kernel_agent.run.tree import Confirmation, Diagnosis, EvaluationRecord, Ideas, Run
from kernel_agent.run.types import (
    Description,
    Device,
    Diagnostic,
    Evaluation,
    Idea,
    Interval,
    Problem,
    Profile,
    Status,
    Timing,
    Trial,
    Versus,
)
from kernel_agent.settings import Settings

EAGER = Timing(1000.0, 990.0, 1010.0, 40)
PROBLEM = Problem("softmax", "class Model: ...", "cpu")
KNOWN = Description(
    Device("cpu", "EPYC", "zen3", 2, 20.0), None, None, 1e6, 1e6, 80.0, {"eager": EAGER, "compile": EAGER}
)


def passed(speedup: float, compiled: float | None = None) -> Evaluation:
    timing = Timing(1000 / speedup, 990 / speedup, 1010 / speedup, 40)
    versus = [Versus("eager", EAGER, Interval(speedup * 0.99, speedup, speedup * 1.01))]
    if compiled:  # a second judgement, on a slower day
        slow = Timing(1100.0, 1090.0, 1110.0, 40)
        versus[0] = Versus("eager", slow, versus[0].speedup)
        versus.append(Versus("compile", slow, Interval(compiled * 0.99, compiled, compiled * 1.01)))
    return Evaluation(Status.PASSED, "", timing, tuple(versus), error=1.25)


def started(tmp_path: Path) -> tuple[Run, list[Event]]:
    """A run of one round: one idea passes at 2x, one fails to build; and its events."""
    run = Run(PROBLEM, Settings(_env_file=None), KNOWN)
    first, second = (
        Idea(name, 1, run.reference.id, title, "") for name, title in (("a", "tile 128"), ("b", "async copy"))
    )
    good, bad = (Trial(idea.id, 0, 0, run.reference.id, f"# {idea.id}") for idea in (first, second))
    broken = Evaluation(Status.BUILD_ERROR, "\nx.cpp:3: error: no [such] type\nmore")
    for record in (
        Ideas(1, (first, second)),
        good,
        bad,
        EvaluationRecord(good.source_id, passed(2.0)),
        EvaluationRecord(bad.source_id, broken),
        Confirmation(good.source_id, passed(1.9, 1.6)),
    ):
        run.record(record)
    events: list[Event] = [
        Notice("building the index"),
        RunOpened(tmp_path),
        RunStarted(PROBLEM, KNOWN, tmp_path, "templates", "lexical", 3, 0),
        RoundStarted(1, (run.reference,)),
        IdeaRecorded(first),
        IdeaRecorded(second),
        TrialStarted(first, 0, 0),
        Progress(good, "timing"),
        TrialJudged(first, good, passed(2.0)),
        TrialStarted(second, 0, 0),
        TrialJudged(second, bad, broken, shared=True),
        Confirming(good),
        Progress(good, "timing"),
        Confirmed(good, passed(1.9, 1.6), True),
    ]
    return run, events


def test_the_account_counts_what_failed_with_a_reason_each(tmp_path: Path) -> None:
    run, _ = started(tmp_path)
    bad = list(run.trials.values())[2]
    assert f"1 build error, such as {bad.id[:4]}: x.cpp:3: error: no [such] type" in told(run, tmp_path)


def told(run: Run, directory: Path, retrieval: str | None = "lexical") -> str:
    console = Console(file=io.StringIO(), width=160)
    for part in report.account(run, directory, retrieval):
        console.print(part)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_trial_is_one_line_where_there_is_no_terminal(tmp_path: Path) -> None:
    run, events = started(tmp_path)
    rows: list[str] = []
    watch = report.Lines(rows.append)
    for event in events:
        watch(event)
    good, bad = list(run.trials.values())[1:]
    assert rows == [
        "building the index",
        "softmax on cpu (EPYC, 2 threads); proposer templates; lexical retrieval; "
        f"eager PyTorch 1 ms, torch.compile 1 ms, limit 0.08 ms; in {tmp_path}",
        "round 1 from original",
        f"r1 {good.id[:4]} passed 0.5 ms 2.00x  tile 128",
        f"r1 {bad.id[:4]} build_error  async copy: x.cpp:3: error: no [such] type (same source as before)",
        f"confirming {good.id[:4]} with new inputs in fresh processes",
        f"confirmed {good.id[:4]} 0.526 ms 1.90x",
    ]


def test_the_live_table_tells_what_is_left_and_what_is_spent(tmp_path: Path) -> None:
    _, events = started(tmp_path)
    limits = Limits(dollars=5.0, tokens=9000, minutes=30.0)
    with report.Screen(Console(file=io.StringIO(), width=120, force_terminal=True)) as screen:
        for event in events:
            screen(replace(event, expected=12, limits=limits) if isinstance(event, RunStarted) else event)
        screen(Charged(Charge("code", "m", 1000, 500, 0.25, 1.0)))
        shot = Console(file=io.StringIO(), width=160)
        shot.print(screen.picture())
    assert isinstance(shot.file, io.StringIO)
    text = shot.file.getvalue()
    assert "$0.25 of $5, 1,500 of 9,000 tokens" in text and "at most 30 minutes" in text
    assert re.search(r"0:\d\d, about 0:\d\d left", text)


def test_the_live_table_shows_what_each_attempt_is_doing_and_the_best_so_far(tmp_path: Path) -> None:
    _, events = started(tmp_path)
    file = io.StringIO()
    console = Console(file=file, width=120, force_terminal=True, color_system=None)
    pictures = []
    with report.Screen(console) as screen:
        for event in events:
            screen(event)
            shot = Console(file=io.StringIO(), width=120)
            shot.print(screen.picture())
            assert isinstance(shot.file, io.StringIO)
            pictures.append(shot.file.getvalue())
    assert "round 1 of 3: thinking" in pictures[3]
    assert "timing" in pictures[7]
    assert "best so far 2.00x [1.98, 2.02]" in pictures[8]
    assert "build error" in pictures[10]
    assert "confirming" in pictures[-1]
    assert "1 timing" in pictures[7], "what is in flight is counted"
    assert "no [such] type" in file.getvalue()


def test_the_account_ranks_says_how_to_use_the_best_and_how_it_was_measured(tmp_path: Path) -> None:
    run, _ = started(tmp_path)
    (tmp_path / "best_kernel.py").write_text("# a")
    text = told(run, tmp_path)
    good = next(trial for trial in run.trials.values() if trial.idea == "a")
    row = next(row.split() for row in text.splitlines() if "tile 128" in row)
    assert row == [
        "1",
        good.id[:4],
        "tile",
        "128",
        "2.00x",
        "[1.98,",
        "2.02]",
        "1.90x",
        "[1.88,",
        "1.92],",
        "best",
        "1.25",
        "original",
        ">",
        good.id[:4],
    ]
    for part in (
        "2 trials, 1 did not pass\n",
        "1.90x [1.88, 1.92] against eager PyTorch, 1.60x [1.58, 1.62] against torch.compile",
        "best_kernel.py",
        "from best_kernel import ModelNew",
        "it is for inference: it gives no gradients",
        "measured on EPYC (cpu, zen3, 2 threads): eager PyTorch 1 ms, torch.compile 1 ms, limit 0.08 ms",
        "when the best was confirmed: eager PyTorch 1.1 ms, torch.compile 1.1 ms\n",
        "limit: the bytes moved once, or matrix operations in a way that is exact enough, at measured rates",
        "confirmed: the speed-up when judged a second time, with new inputs in fresh processes",
        "retrieval: lexical",
    ):
        assert part in text


def test_what_the_profiler_says_of_the_best_is_told(tmp_path: Path) -> None:
    run, _ = started(tmp_path)
    good = list(run.trials.values())[1]
    assert "bound by" not in told(run, tmp_path)
    words = "registers spilled (line 3: float a[9];)"
    profile = Profile(
        "counters", "memory", "DRAM is busy", ("spills",), (words,), hot_lines=("90 % [x]",), report="ab12"
    )
    run.record(Diagnosis(good.source_id, profile))
    text = told(run, tmp_path)
    for part in (": bound by memory: DRAM is busy", words, "90 % [x]", "read_report ab12"):
        assert part in text
    assert report.line(Profiled(good, profile)) == f"profiled {report.short(good)}: bound by memory: {words}"


def test_what_a_kernel_says_for_itself_does_not_reach_the_terminal_as_orders(tmp_path: Path) -> None:
    run, _ = started(tmp_path)
    good, bad = list(run.trials.values())[1:]
    evil = "\x1b]0;mine\x07\x1b[2Jgone\u202e\x9b\ud800\x08"
    run.record(Diagnosis(good.source_id, Profile("counters", "memory", evil, (), (evil,), hot_lines=(evil,))))
    idea = run.ideas[bad.idea or ""]
    rows = [report.line(TrialJudged(idea, bad, Evaluation(Status.RUN_ERROR, evil)))]
    rows += [report.line(Profiled(good, run.profiles[good.source_id])), told(run, tmp_path)]
    for row in rows:
        assert row and "gone" in row and row.replace("\n", "").isprintable()


def test_where_nothing_is_faster_the_original_is_delivered(tmp_path: Path) -> None:
    run = Run(PROBLEM, Settings(_env_file=None), KNOWN)
    (tmp_path / "best_kernel.py").write_text(PROBLEM.source)
    text = told(run, tmp_path)
    assert "Nothing was faster than the original beyond the noise" in text
    assert "confirmed:" not in text and "was confirmed" not in text and "gradients" not in text
    assert "from best_kernel import Model\n" in text


def test_a_refused_confirmation_and_what_was_not_judged_are_told_as_such(tmp_path: Path) -> None:
    run = Run(PROBLEM, Settings(_env_file=None), KNOWN)
    ideas = tuple(Idea(name, 1, run.reference.id, f"idea {name}", "") for name in "abcd")
    trials = [Trial(idea.id, 0, 0, run.reference.id, f"# {idea.id}") for idea in ideas]
    wrong = Evaluation(Status.WRONG, "")
    for record in (Ideas(1, ideas), *trials):
        run.record(record)
    for trial, first, second in zip(
        trials, (passed(3.0), passed(2.0), wrong), (wrong, passed(1.0), None), strict=False
    ):
        run.record(EvaluationRecord(trial.source_id, first))
        if second:
            run.record(Confirmation(trial.source_id, second))
    text = told(run, tmp_path)
    assert "4 trials, 1 did not pass, 1 not judged\n" in text
    cells = {row.split("idea ")[1][0]: row for row in text.splitlines() if "idea " in row}
    assert "3.00x [2.97, 3.03]" in cells["a"] and "no: wrong" in cells["a"]
    assert "2.00x [1.98, 2.02]" in cells["b"] and "no: 1.00x [0.99, 1.01]" in cells["b"]


def test_a_broken_run_says_how_to_go_on(tmp_path: Path) -> None:
    run, _ = started(tmp_path)
    assert "The run is not finished: python -m kernel_agent resume" in told(run, tmp_path, None)


@pytest.mark.parametrize(
    ("us", "text"), [(0.5, "0.0005 ms"), (412, "0.412 ms"), (5333, "5.33 ms"), (123456, "123 ms"), (2.5e6, "2,500 ms")]
)
def test_times_are_milliseconds_of_three_digits(us: float, text: str) -> None:
    assert report.ms(us) == text


def test_of_a_build_that_failed_the_compilers_error_is_told_and_no_warning() -> None:
    log = "nvcc warning : incompatible redefinition for option 'optimize'\nptxas fatal   : (C7602) registers\n"
    error = Diagnostic("error", "(C7602) Insufficient registers (128)", "a.cu", 7)
    found = report.verdict_text(Evaluation(Status.BUILD_ERROR, log, diagnostics=(error,)))
    assert found == "build_error: a.cu:7: error: (C7602) Insufficient registers (128)"
