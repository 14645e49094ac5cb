"""Suites are played, stopped at any moment and gone on with: real journals and stores, real processes and kills."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_agent.cli.report import line
from kernel_agent.errors import BudgetSpent, ProblemError, ServerError
from kernel_agent.interfaces import OnProgress, ignore
from kernel_agent.run.budget import Limits
from kernel_agent.run.journal import read as run_in
from kernel_agent.run.types import Description, Evaluation, Problem, digest
from kernel_agent.suite.rows import rows_of
from kernel_agent.suite.store import Store, Suite, read
from kernel_agent.suite.sums import sums
from kernel_agent.suite.types import Outcome, State
from tests.support.paths import ROOT
from tests.support.scripted_run import standings
from tests.support.scripted_suite import NAMES, ScriptedPool, plan, play, problems


class Troubled(ScriptedPool):
    """A pool on which problems whose source says so fail, each in its way."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = False
        self.described = 0

    async def available(self) -> frozenset[str]:
        if self.lost:
            raise ServerError("No server is left.")
        return await super().available()

    async def describe(
        self, problem: Problem, on_progress: OnProgress = ignore, baselines: Iterable[str] | None = None
    ) -> Description:
        self.described += 1
        if "# raises" in problem.source:
            raise ProblemError("The problem raises ValueError: no.")
        if "# hangs" in problem.source:
            await asyncio.Event().wait()
        if "# bug" in problem.source:
            raise ZeroDivisionError("a bug of ours")
        if "# takes the pool along" in problem.source:
            self.lost = True
        if self.lost:
            raise ServerError("The measuring server died again.")
        return await super().describe(problem, on_progress, baselines)


class Stuck(ScriptedPool):
    """Judges so many candidates, then none any more; `hours` is 0 until then and 2 from then on."""

    def __init__(self, judges: int) -> None:
        super().__init__()
        self.judges = judges
        self.hours = 0

    async def evaluate(
        self, problem: Problem, source: str, on_progress: OnProgress = ignore, heeds_compiler: bool = False
    ) -> Evaluation:
        if len(self.judged) >= self.judges:
            self.hours = 2
            await asyncio.Event().wait()
        return await super().evaluate(problem, source, on_progress, heeds_compiler)


def states(suite: Suite) -> list[str]:
    return [str(suite.outcome(problem).state) for problem in suite.problems]


async def test_every_problem_is_played_and_its_run_opens_as_any_run(tmp_path: Path) -> None:
    with Store.create(tmp_path / "suite", plan(), problems(*NAMES)) as store:
        await play(store, ScriptedPool(), line)
    suite = read(tmp_path / "suite")
    assert states(suite) == ["done"] * len(NAMES)
    for problem in suite.problems:
        run = run_in(problem.directory(suite.directory))
        assert run.problem.source == problem.code and run.evaluations
        log = (suite.directory / "logs" / f"{problem.id}.log").read_text()
        assert "confirmed" in log and "round 2 from" in log


async def test_a_problem_that_fails_in_any_way_stops_no_other(tmp_path: Path) -> None:
    bad = [*problems("raises", more="# raises\n"), *problems("bug", more="# bug\n")]
    with Store.create(tmp_path / "suite", plan(), (*bad, *problems("good"))) as store:
        await play(store, Troubled())
    suite = read(tmp_path / "suite")
    assert states(suite) == ["failed", "failed", "done"]
    first, second = suite.outcomes["raises"], suite.outcomes["bug"]
    assert (first.reason, first.fault) == ("The problem raises ValueError: no.", ProblemError.__name__)
    assert (second.reason, second.fault) == ("A fault of ours, ZeroDivisionError: a bug of ours", "ZeroDivisionError")
    assert "Traceback" in (suite.directory / "logs" / "bug.log").read_text()


async def test_a_problem_that_hangs_ends_with_its_own_minutes(tmp_path: Path) -> None:
    both = (*problems("hangs", more="# hangs\n"), *problems("good"))
    with Store.create(tmp_path / "suite", plan(budget_minutes=0.1), both) as store:
        await play(store, Troubled())
    suite = read(tmp_path / "suite")
    assert suite.outcomes["good"].state is State.DONE
    assert suite.outcomes["hangs"].fault == BudgetSpent.__name__


async def test_a_problem_that_hangs_before_it_is_described_is_charged_its_time(tmp_path: Path) -> None:
    with Store.create(tmp_path / "suite", plan(budget_minutes=0.01), problems("stuck", more="# hangs\n")) as store:
        await play(store, Troubled())
    [row] = rows_of(read(tmp_path / "suite"))
    assert row.status == "failed" and "still being described" in (row.reason or "")
    assert 0.9 * 0.01 <= row.minutes < 1


async def test_where_templates_have_no_kernel_the_original_is_delivered_and_why(tmp_path: Path) -> None:
    class Untraced(ScriptedPool):
        async def describe(
            self, problem: Problem, on_progress: OnProgress = ignore, baselines: Iterable[str] | None = None
        ) -> Description:
            known = await super().describe(problem, on_progress, baselines)
            return replace(known, graph=None, graph_error="torch.export cannot trace it: it branches.")

    with Store.create(tmp_path / "suite", plan(), problems("branches")) as store:
        await play(store, Untraced())
    suite = read(tmp_path / "suite")
    [row] = rows_of(suite)
    assert (states(suite), row.status, row.evaluations, row.correct) == (["done"], "original_delivered", 0, False)
    assert row.reason == "torch.export cannot trace it: it branches."
    assert not sums([row]).covered


async def test_what_an_earlier_version_refused_is_played_on_resume(tmp_path: Path) -> None:
    with Store.create(tmp_path / "suite", plan(), problems("good")) as store:
        store.append(Outcome("good", State.FAILED, "No template covers aten.sort.", "NotCovered"))
        await play(store, ScriptedPool())
        assert states(store.load()) == ["done"]


async def test_a_pool_that_is_lost_stops_the_suite_and_fails_no_problem(tmp_path: Path) -> None:
    last = problems("last", more="# takes the pool along\n")
    with Store.create(tmp_path / "suite", plan(at_once=1), (*problems("first"), *last, *problems("never"))) as store:
        with pytest.raises(ServerError, match="died again"):
            await play(store, Troubled())
        assert states(store.load()) == ["done", "running", "waiting"]
        await play(store, ScriptedPool())
        assert states(store.load()) == ["done"] * 3


async def test_a_server_that_fails_one_problem_alone_is_asked_again_on_resume(tmp_path: Path) -> None:
    class Fails(ScriptedPool):
        async def describe(self, *given: object, **more: object) -> Description:
            raise ServerError("The measuring server failed in describe_problem: once.")

    with Store.create(tmp_path / "suite", plan(), problems("a")) as store:
        await play(store, Fails())
        assert states(store.load()) == ["failed"]
        await play(store, ScriptedPool())
        assert states(store.load()) == ["done"]


async def test_where_the_minutes_are_over_the_best_is_delivered_and_the_rest_waits(tmp_path: Path) -> None:
    hour, stuck = plan(Limits(minutes=60.0), at_once=1), Stuck(6)
    with Store.create(tmp_path / "suite", hour, problems("under-way", "never")) as store:
        played = await play(store, stuck, clock=lambda: time.monotonic() + stuck.hours * 3600)
    suite = read(tmp_path / "suite")
    assert played.waiting == ("never",) and states(suite) == ["done", "waiting"]
    assert suite.outcomes["under-way"].spent and suite.seconds >= 7200
    assert (tmp_path / "suite" / "problems" / "under-way" / "best_kernel.py").is_file()


async def test_what_is_left_goes_to_problems_that_gain_as_more_rounds(tmp_path: Path) -> None:
    with Store.create(tmp_path / "suite", plan(Limits(minutes=60.0)), problems(*NAMES)) as store:
        await play(store, ScriptedPool())
    suite = read(tmp_path / "suite")
    more = [grant for grant in suite.grants if grant.rounds]
    assert more and all(grant.best > 1 and grant.judged for grant in more)
    for grant in more:
        run = run_in(tmp_path / "suite" / "problems" / grant.problem)
        assert run.settings.num_rounds == 2 + sum(one.rounds for one in suite.granted(grant.problem))
    shares = [grant for grant in suite.grants if not grant.rounds]
    assert [grant.problem for grant in shares] == list(NAMES) and {grant.minutes for grant in shares} == {12.0}


async def test_with_even_each_problem_gets_the_same_and_no_more(tmp_path: Path) -> None:
    with Store.create(tmp_path / "suite", plan(Limits(minutes=60.0), even=True), problems(*NAMES)) as store:
        await play(store, ScriptedPool())
    grants = read(tmp_path / "suite").grants
    assert [grant.problem for grant in grants] == list(NAMES)
    assert [grant.minutes for grant in grants] == pytest.approx([24.0] * len(NAMES), rel=0.05)


async def test_a_suite_that_is_cancelled_goes_on_where_it_was(tmp_path: Path) -> None:
    with Store.create(tmp_path / "suite", plan(), problems(*NAMES)) as store:
        stuck = Stuck(12)
        task = asyncio.create_task(play(store, stuck))
        while len(stuck.judged) < 12:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert "running" in states(store.load())
        pool = ScriptedPool()
        await play(store, pool)
        assert states(store.load()) == ["done"] * len(NAMES)
        assert pool.judged and stuck.judged


def killed(directory: Path, log: Path, after: int | None = None) -> int:
    """Play or resume the suite in a process, and kill it -9 after so many of its lines; the exit code."""
    command = [sys.executable, "-m", "tests.support.scripted_suite", str(directory), str(log)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for number, _ in enumerate(process.stdout, 1):
            if number == after:
                process.kill()
    return process.returncode


def judged(log: Path) -> list[str]:
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    return [digest(entry["source"]) for entry in entries if "fresh" in entry and not entry["fresh"]]


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long), pytest.param(3, marks=pytest.mark.long)])
def test_a_suite_killed_twice_and_resumed_ends_like_one_that_never_was(tmp_path: Path, seed: int) -> None:
    draws = random.Random(seed)
    assert killed(tmp_path / "whole", tmp_path / "whole.log") == 0
    for after in (draws.randrange(20, 60), draws.randrange(20, 60)):
        assert killed(tmp_path / "broken", tmp_path / "log", after) == -9
    assert killed(tmp_path / "broken", tmp_path / "log") == 0
    whole, broken = read(tmp_path / "whole"), read(tmp_path / "broken")
    assert states(whole) == states(broken) == ["done"] * len(NAMES)
    for problem in whole.problems:
        one, other = (run_in(problem.directory(suite.directory)) for suite in (whole, broken))
        assert standings(one) == standings(other) and one.confirmations == other.confirmations
    again = len(judged(tmp_path / "log")) - len(judged(tmp_path / "whole.log"))
    assert 0 <= again <= 2 * 2 * 8  # what was in flight at two kills: two problems' candidates
