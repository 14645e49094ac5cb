"""What a run leaves to later ones, what of theirs fits it, and how it is told: pure functions over values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kernel_agent.knowledge.extract import experiences_for_brief, experiences_for_problem, learnt, question
from kernel_agent.knowledge.render import BUDGET, experience_text, line
from kernel_agent.replies import Proposed
from kernel_agent.run.tree import Confirmation, Diagnosis, EvaluationRecord, Ideas, Recalled, Run
from kernel_agent.run.types import Evaluation, Idea, Interval, Profile, Status, Timing, Trial, Versus
from kernel_agent.search import briefing
from rag.experience.ledger import EAGER, Experience, Gain, as_line, read_line
from tests.support.experiences import ROW, experience
from tests.support.scripted_run import DESCRIPTION, PROBLEM, small_settings

REASONS = {
    "bottleneck": "DRAM",
    "transformation": "keep the row in registers",
    "reasoning": "one pass",
    "predicted_gain": "1.3",
    "predicted": 1.3,
    "risk": "none",
}


def passed(speedup: float, *, width: float = 0.01, log: str = "") -> Evaluation:
    interval = Interval(speedup - width, speedup, speedup + width)
    timing = Timing(100 / speedup, 99 / speedup, 101 / speedup, 20)
    facts = {"torch": "2.13.0", "toolkit": "CUDA 13.0"}
    return Evaluation(Status.PASSED, log, timing, (Versus("eager", timing, interval),), 0.5, facts)


def failed(status: Status, log: str) -> Evaluation:
    return Evaluation(status, log)


class Play:
    """A run that grows by ideas with their implementations; each call returns the last trial."""

    def __init__(self) -> None:
        self.run = Run(PROBLEM, small_settings(), DESCRIPTION)
        self.run.record(Recalled("relu-1", "2026-11-28"))

    def idea(self, title: str, parent: Trial | None = None, round: int = 1, **parts: Any) -> Idea:
        parts = REASONS | parts
        idea = Idea(title, round, (parent or self.run.reference).id, title, **parts)
        self.run.record(Ideas(round, (idea,)))
        return idea

    def tried(self, idea: Idea, *evaluations: Evaluation, attempt: int = 0, source: str = "") -> Trial:
        parent = idea.parent
        for step, evaluation in enumerate(evaluations):
            trial = Trial(idea.id, attempt, step, parent, source or f"# {idea.title} {attempt} {step}\n")
            self.run.record(trial)
            if trial.source_id not in self.run.evaluations:
                self.run.record(EvaluationRecord(trial.source_id, evaluation))
            parent = trial.id
        return trial

    def one(self) -> Experience:
        (found,) = learnt(self.run)
        return found


@pytest.fixture
def play() -> Play:
    return Play()


def test_an_implementation_that_passed_is_told_with_all_that_stands_behind_it(play: Play) -> None:
    play.tried(play.idea("Row in registers"), passed(1.27))
    assert play.one() == replace(
        ROW,
        id=play.one().id,
        run="relu-1",
        date="2026-11-28",
        problem="relu",
        target="cpu",
        arch="x86_64",
        device="scripted",
        families=("pointwise",),
        operators=("relu",),
        title="Row in registers",
        transformation="keep the row in registers",
        why="one pass",
        gain=Gain(1.26, 1.27, 1.28),
        speedup=Gain(1.26, 1.27, 1.28),
        confirmed=False,
    )


@pytest.mark.parametrize(
    ("speedup", "width", "verdict"),
    [(1.2, 0.01, "faster"), (1.05, 0.01, "inconclusive"), (1.2, 0.2, "inconclusive"), (0.8, 0.01, "slower")],
)
def test_the_verdict_is_that_of_the_interval_beyond_the_noise(
    play: Play, speedup: float, width: float, verdict: str
) -> None:
    play.tried(play.idea("Unroll"), passed(speedup, width=width))
    assert play.one().verdict == verdict


def test_over_eager_pytorch_the_server_s_verdict_is_kept(play: Play) -> None:
    faster = passed(1.03)
    faster = replace(faster, versus=(replace(faster.versus[0], verdict="faster"), *faster.versus[1:]))
    play.tried(play.idea("Unroll"), faster)
    assert play.one().verdict == "faster"


def test_a_change_to_a_kernel_is_held_against_that_kernel(play: Play) -> None:
    first = play.tried(play.idea("Fuse"), passed(2.0))
    play.tried(play.idea("Prefetch", first, round=2), passed(3.0))
    fused, fetched = learnt(play.run)
    assert (fused.baseline, fetched.baseline) == (EAGER, "Fuse")
    assert fetched.gain and fetched.gain.median == pytest.approx(1.5)
    assert (fetched.gain.low, fetched.gain.high) == (pytest.approx(2.99 / 2.01), pytest.approx(3.01 / 1.99))
    assert fetched.speedup and fetched.speedup.median == 3.0


def test_of_a_chain_of_repairs_the_passed_kernel_counts_or_the_last_failure(play: Play) -> None:
    wrong, broken = failed(Status.WRONG, "output 0 is off\nmore"), failed(Status.BUILD_ERROR, "error: no such thing")
    play.tried(play.idea("Mended"), broken, passed(1.5))
    play.tried(play.idea("Given up"), broken, wrong)
    mended, given_up = sorted(learnt(play.run), key=lambda one: one.title, reverse=True)
    assert (mended.verdict, given_up.verdict, given_up.gain, given_up.speedup) == ("faster", "wrong", None, None)
    assert given_up.why == "output 0 is off after 1 repair"


def test_the_second_judgement_counts_where_there_is_one(play: Play) -> None:
    trial = play.tried(play.idea("Lucky"), passed(1.5))
    other = play.tried(play.idea("Luckier"), passed(2.0))
    child = play.idea("On it", trial, round=2)
    play.tried(child, passed(2.4))
    play.run.record(Confirmation(trial.source_id, passed(1.2)))
    play.run.record(Confirmation(other.source_id, failed(Status.WRONG, "on other inputs")))
    lucky, luckier, on_it = learnt(play.run)
    assert lucky.gain and (lucky.gain.median, lucky.confirmed) == (1.2, True)
    assert (luckier.verdict, luckier.confirmed, luckier.why) == ("wrong", True, "on other inputs when judged again")
    assert on_it.gain and on_it.gain.median == pytest.approx(2.0), "its parent's second judgement too"


def test_a_source_that_stands_twice_is_one_experience_an_unjudged_one_none(play: Play) -> None:
    idea = play.idea("Twice")
    for attempt in range(2):
        play.tried(idea, passed(1.5), attempt=attempt, source="# the same\n")
    play.run.record(Trial(idea.id, 2, 0, idea.parent, "# waits\n"))
    assert len(learnt(play.run)) == 1


def test_what_limits_is_what_was_seen_of_the_parent_and_then_of_the_kernel(play: Play) -> None:
    first = play.tried(play.idea("Fuse"), passed(2.0))
    play.run.record(Diagnosis(first.source_id, Profile("counters", "memory", "", ("bank_conflicts",), ("32 ways",))))
    play.tried(play.idea("Pad", first, round=2), passed(3.0))
    fuse, pad = learnt(play.run)
    assert (fuse.bottleneck, pad.bottleneck) == ("dram-bw", "smem")
    assert fuse.why == "one pass; then bound by memory: 32 ways"


def test_the_same_run_gives_the_same_records_and_longer_words_are_cut(play: Play) -> None:
    play.tried(play.idea("a" * 500, transformation="b " * 5000), failed(Status.TIMEOUT, "\ud800" + "c" * 9000))
    assert learnt(play.run) == learnt(play.run)
    one = read_line(as_line(play.one()))
    assert (len(one.title), len(one.transformation), len(one.why)) == (200, 600, 600)


def test_a_transformation_of_several_lines_is_kept_whole(play: Play) -> None:
    parts = {"transformation": "first the row,\nthen its sum\n", "reasoning": "it is\nshort", "predicted": 1.5}
    play.tried(play.idea("Rows", **parts), passed(1.5))
    assert play.one().transformation == "first the row, then its sum"
    assert (play.one().why, play.one().predicted) == ("it is short", 1.5)


def test_a_run_without_a_name_or_operators_leaves_nothing(play: Play) -> None:
    play.tried(play.idea("Fuse"), passed(2.0))
    assert not learnt(replace(play.run, recalled=None))
    assert not learnt(replace(play.run, description=replace(DESCRIPTION, graph=None)))


@pytest.mark.parametrize(
    ("told", "factor"),
    [
        ("1.3", 1.3),
        ("1.3x, no more", 1.3),
        ("30 %", 1.3),
        ("about 12%", 1.12),
        ("2", 2.0),
        ("much", None),
        ("0", None),
        ("20-30 %", 1.2),
        ("10 to 20%", 1.1),
        ("1.1–1.3×", 1.1),
        ("40 percent", 1.4),
        ("2-fold", 2.0),
        (".8x", 0.8),
        ("1,3x", 1.3),
        ("2 passes become one: 1.5x", 1.5),
        ("from 40% to 80% of the peak, 2x", 2.0),
        ("3x3 tiles", 3.0),
        ("٣٠٪", 1.3),
        ("１.５", 1.5),
        ("-0.5", None),
        ("−30 %", None),
        ("1e-05", 1e-05),
        ("1e+22", None),
        ("1e400", None),
        ("9" * 5000, None),
        ("nan", None),
        ("Infinity", None),
        ("²", None),
    ],
)
def test_a_promise_is_read_as_a_factor(told: str, factor: float | None) -> None:
    found = Proposed(title="t", transformation="5 passes", predicted_gain=told).predicted
    assert found == (factor and pytest.approx(factor))
    assert Proposed(title="t", transformation="5 passes").predicted is None


def at(target: str = "cpu", arch: str = "x86_64", *families: str, run: str = "other") -> Experience:
    return experience(target=target, arch=arch, families=families or ("pointwise",), run=run)


def test_only_the_same_device_class_and_operator_fit_and_never_the_run_itself(play: Play) -> None:
    own = at(run="relu-1")
    others = [at(arch="aarch64"), at("cuda", "sm_90"), at("cpu", "x86_64", "norm", "pointwise"), own]
    assert experiences_for_problem(play.run, [at(), *others]) == (at(),)
    graph = {**(DESCRIPTION.graph or {}), "nodes": [{**DESCRIPTION.graph["nodes"][0], "op": "aten.sum.dim_IntList"}]}  # type: ignore[index]
    summing = replace(play.run, description=replace(DESCRIPTION, graph=graph))
    reduced = at("cpu", "x86_64", "reduction", "pointwise")
    assert experiences_for_problem(summing, [at(), reduced, at("cpu", "x86_64", "gemm", "pointwise")]) == (reduced,)
    assert question(summing) == "reduction sum"


def test_a_brief_gets_what_was_measured_against_its_own_limit(play: Play) -> None:
    play.run.recalled = Recalled("r", "2026-11-28", (experience("a", bottleneck="smem"), experience("b")))
    brief = briefing.brief(play.run, play.run.reference, 1)
    assert [one.id for one in experiences_for_brief(play.run, brief)] == ["b"]
    seen = replace(brief, parent_profile=Profile("counters", "memory", "", ("bank_conflicts",)))
    assert [one.id for one in experiences_for_brief(play.run, seen)] == ["a"]


def test_a_line_says_where_what_was_promised_what_was_measured_and_how_often() -> None:
    tries = [experience(str(n), gain=Gain(1.2 + n / 100, 1.22 + n / 100, 1.24 + n / 100)) for n in range(6)]
    tries.append(experience("last", verdict="wrong", why="output 0 is off"))
    assert line([ROW]) == (
        "on NVIDIA H100 80GB HBM3, reduction, dram-bw: 'Hold the row in registers' predicted 1.3x, "
        "measured 1.27x [1.25, 1.29] over eager PyTorch, faster [2026-11-20, torch 2.13.0, CUDA 13.0]"
    )
    assert "measured 1.25x [1.23, 1.27] over eager PyTorch, 6 of 7 times faster, 1 wrong (output 0 is off)" in line(
        tries
    )


def test_a_failure_says_why_and_a_slower_kernel_what_it_was_slower_than() -> None:
    wrong = experience(verdict="build_error", why="no such intrinsic", torch=None, toolkit=None)
    assert line([wrong]).endswith("predicted 1.3x, build error (no such intrinsic) [2026-11-20]")
    slower = experience(verdict="slower", gain=Gain(0.7, 0.8, 0.9), baseline="Fuse", predicted=None)
    assert "registers' measured 0.80x [0.70, 0.90] over 'Fuse', slower (DRAM sees" in line([slower])


def test_other_words_for_one_idea_are_told_together_and_other_places_apart() -> None:
    again = experience("again", title="Keep row in registers", transformation="values of the row stay in registers")
    assert experience_text([ROW, again]).count("\n") == 0 and "2 of 2 times faster" in experience_text([ROW, again])
    for changed in (
        {"device": "NVIDIA H200"},
        {"bottleneck": "latency"},
        {"baseline": "Fuse"},
        {"families": ("norm",)},
    ):
        assert experience_text([ROW, experience("other", **changed)]).count("\n") == 1


WAYS = ("vector loads", "shared memory tiles", "a persistent grid", "prefetched lines", "warp shuffles", "online sums")


def test_what_failed_is_told_beside_what_was_faster_within_the_budget() -> None:
    won = [experience(f"w{way}", title=way.title(), transformation="") for way in WAYS]
    lost = [experience(f"l{way}", title=f"No {way}", transformation="", verdict="wrong", device="H200") for way in WAYS]
    text = experience_text([*won, *lost], budget=1000)
    assert 700 < len(text.encode()) <= 1000
    assert text.count(" wrong ") >= 2 and text.count(" faster ") >= 2
    assert experience_text([*won, *lost]).count("\n") == 11 and len(experience_text([*won, *lost]).encode()) <= BUDGET
    assert experience_text([]) == ""
    assert len(experience_text([experience(title="ü" * 100, why="")], budget=150).encode()) <= 150, (
        "bytes, not characters"
    )
