"""Kernels that are there already go before the judge: those made elsewhere, and once more those that a suite delivers.

Both take the candidates as files, in fresh processes with new secret inputs, over a pool, and go on where they stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_agent.agent import found_target
from kernel_agent.delivery import BEST, write
from kernel_agent.errors import KernelAgentError, UsageError
from kernel_agent.interfaces import Pool
from kernel_agent.problem.from_source import load_problem
from kernel_agent.run.journal import read
from kernel_agent.run.types import Description, Device, Evaluation, Problem, digest
from kernel_agent.search.concurrency import together
from kernel_agent.suite.kernels import Kernels
from kernel_agent.suite.rows import file_id, rows_of, why_not_passed
from kernel_agent.suite.store import Store, Suite
from kernel_agent.suite.table import times
from kernel_agent.suite.types import Confirmed, Outcome, Row, State, SuiteProblem, Verdict
from rag import text_files

A_DEVICE = 2
"""Kernels at once for each device: one is built while another is judged."""

Tell = Callable[[str], None]
"""Hears a line for each kernel that has been judged."""


@dataclass(frozen=True, slots=True)
class Judging:
    """A suite's directory, who judges, and who hears of it. With `anew` what has been judged is judged again."""

    store: Store
    pool: Pool
    tell: Tell
    anew: bool = False

    async def evaluate(self, kernels: Kernels) -> None:
        """Judge each problem's file against eager PyTorch and the fastest mode of torch.compile.

        A problem without a file, one that cannot be judged, and a kernel that does not pass are outcomes.
        """
        suite = self.store.load()
        target = suite.plan.settings.get("target") or await found_target(self.pool)
        if target != suite.plan.settings.get("target"):
            settings = dict(suite.plan.settings) | {"target": target}
            self.store.replan(replace(suite.plan, settings=settings))
        for problem, why in kernels.missing.items():
            self.store.append(Outcome(problem, State.FAILED, why, UsageError.__name__))
            self.tell(f"{problem}: {why}")
        problems = [problem for problem in suite.problems if problem.id in kernels.files]
        await self._each(problems, lambda problem: self._evaluate(suite, problem, target, kernels))

    async def _evaluate(self, suite: Suite, problem: SuiteProblem, target: str, kernels: Kernels) -> None:
        file, before = kernels.files[problem.id], suite.verdicts.get(problem.id)
        try:
            source = _text(file)
            if before and not self.anew and (before.source_id, before.target) == (digest(source), target):
                self.store.append(Outcome(problem.id, State.DONE))
                return
            self.store.append(Outcome(problem.id, State.RUNNING))
            description, found = await self._judged(_problem(problem, target), source)
        except KernelAgentError as fault:
            self.store.append(Outcome(problem.id, State.FAILED, str(fault), type(fault).__name__))
            self.tell(f"{problem.id}: {fault}")
            return
        directory = problem.directory(self.store.directory)
        directory.mkdir(parents=True, exist_ok=True)
        write(directory / BEST, source)
        verdict = Verdict(problem.id, str(file), digest(source), target, description, found)
        self.store.append(verdict, Outcome(problem.id, State.DONE))
        self.tell(f"{problem.id}: {why_not_passed(found) or _over_eager(found)}")

    async def _judged(self, problem: Problem, source: str) -> tuple[Description, Evaluation]:
        """What is known of the problem, with all of torch.compile's times, and the verdict; all on one device model."""
        known = await self.pool.describe(problem, baselines=["eager"])
        bench = self.pool.like(known.device)
        for baseline in await bench.baselines(problem, known.unmeasured) if known.unmeasured else ():
            known = known.joined(baseline)
        found = await bench.confirm(problem, source, known.rivals)
        return replace(known, graph=None, contract=None), found

    async def confirm(self) -> tuple[str, ...]:
        """Judge each delivered kernel again, as its file lies there; why some could not be, a sentence each."""
        suite = self.store.load()
        faults: list[str] = []
        rows = {row.problem: row for row in rows_of(suite) if row.correct}
        if not rows:
            raise UsageError(f"The suite in {suite.directory} has delivered no kernel that could be judged again.")
        problems = [problem for problem in suite.problems if problem.id in rows]
        await self._each(problems, lambda problem: self._confirm(suite, problem, rows[problem.id], faults))
        return tuple(faults)

    async def _confirm(self, suite: Suite, problem: SuiteProblem, row: Row, faults: list[str]) -> None:
        file = problem.directory(suite.directory) / BEST
        before, source_id = suite.confirmed.get(problem.id), file_id(file)
        if before and before.source_id == source_id and not self.anew:
            return
        found = None
        why = f"{file} is missing"
        if source_id:
            try:
                stated, device = _stated(suite, problem)
                baselines = ("eager", *([row.compile_mode] if row.compile_mode else []))
                found = await self.pool.like(device).confirm(stated, _text(file), baselines)
            except KernelAgentError as fault:
                faults.append(f"{problem.id}: {fault}")
                self.tell(faults[-1])
                return
            why = why_not_held(row, found)
        self.store.append(Confirmed(problem.id, source_id, why, found))
        self.tell(f"{problem.id}: {why or (f'held, {_over_eager(found)}' if found else '')}")

    async def _each(self, problems: Iterable[SuiteProblem], judge: Callable[[SuiteProblem], Awaitable[None]]) -> None:
        room = asyncio.Semaphore(A_DEVICE * self.pool.width)

        async def one(problem: SuiteProblem) -> None:
            async with room:
                await judge(problem)

        await together(map(one, problems))


def why_not_held(row: Row, found: Evaluation) -> str:
    """Why a kernel did not hold when it was judged once more; empty where it did. One that was faster has to be."""
    if why := why_not_passed(found):
        return why
    if row.status == "improved" and found.comparison != "faster":
        return f"{found.comparison}: {_over_eager(found)}, {times(row.speedup)} before"
    return ""


def _over_eager(found: Evaluation) -> str:
    return f"{times(found.against('eager'))} over eager PyTorch"


def _stated(suite: Suite, problem: SuiteProblem) -> tuple[Problem, Device]:
    """A problem as its kernel was judged on it, and the device."""
    if verdict := suite.verdicts.get(problem.id):
        return _problem(problem, verdict.target), verdict.description.device
    run = read(problem.directory(suite.directory))
    return run.problem, run.description.device


def _problem(problem: SuiteProblem, target: str) -> Problem:
    return load_problem(problem.code, problem.id.replace("/", "-"), target, problem.shapes or None)


def _text(file: Path) -> str:
    try:
        return text_files.decoded(file.read_bytes())
    except OSError as error:
        raise UsageError(f"{file} cannot be read ({error.strerror}).") from None
    except text_files.NotText as fault:
        raise UsageError(f"{file} {fault}.") from None
