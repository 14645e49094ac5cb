"""A suite is played: several problems at once, each a run of its own, over one pool and under one budget."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kernel_agent.agent import KernelAgent, found_target
from kernel_agent.errors import (
    BudgetSpent,
    DiskError,
    KernelAgentError,
    ProviderError,
    Unavailable,
    Waiting,
)
from kernel_agent.interfaces import Pool
from kernel_agent.knowledge.library import IndexedKnowledge
from kernel_agent.run import journal
from kernel_agent.run.budget import Limits
from kernel_agent.run.events import Event, Stopped
from kernel_agent.settings import load_settings, provider_of
from kernel_agent.suite import grants
from kernel_agent.suite.board import Board, Lane
from kernel_agent.suite.grants import History, Rules
from kernel_agent.suite.history import history
from kernel_agent.suite.plan import Grant, Plan, granted
from kernel_agent.suite.store import LOGS, Store
from kernel_agent.suite.types import Outcome, State, SuiteProblem
from kernel_agent.targets import target_of

TICK_S = 2.0
"""Seconds between two notes of how long a suite has lasted: what a killed one forgets at most."""

A_DEVICE = 2
"""Problems at once for each device: one is judged while another's next kernels are written and built."""

Found = dict[str, Any]
Words = Callable[[Event], str | None]
"""The line that a log gets for an event, if it is worth one."""


@dataclass(frozen=True, slots=True)
class Began:
    """A problem gets under way; `grant` is what it was given for it, None where it goes on with what it has."""

    problem: str
    grant: Grant | None


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a problem."""

    outcome: Outcome
    history: History


Watch = Callable[[Began | Ended, Board], None]


@dataclass(slots=True)
class Play:
    """Plays the suite of a store over a pool and a library; `watch` hears of every problem that begins or ends.

    `board` is what it is at. The run of each problem is a directory of its own, which `show` and `resume` take.
    """

    store: Store
    pool: Pool
    library: IndexedKnowledge
    words: Words
    watch: Watch = lambda _, __: None
    clock: Callable[[], float] = time.monotonic
    board: Board = field(init=False)
    _plan: Plan = field(init=False)
    _problems: dict[str, SuiteProblem] = field(init=False)
    _outcomes: dict[str, Outcome] = field(default_factory=dict)
    _histories: dict[str, History] = field(default_factory=dict)
    _tasks: dict[asyncio.Task[Found], str] = field(default_factory=dict)
    _spent: set[str] = field(default_factory=set)
    _short: set[str] = field(default_factory=set)
    """Problems whose minutes are what the suite has for them, and not a limit of their own."""
    _rules: Rules = field(init=False)
    _began: float = field(init=False)

    def __post_init__(self) -> None:
        suite = self.store.load()
        self._began = self.clock()
        self._plan = suite.plan
        self._problems = {problem.id: problem for problem in suite.problems}
        for problem in suite.problems:
            outcome, own = again(suite.outcome(problem)), suite.granted(problem.id)
            self._outcomes[problem.id] = outcome
            self._histories[problem.id] = history(problem.directory(self.store.directory), outcome, own)
        at_once = suite.plan.at_once or A_DEVICE * self.pool.width
        self._rules = rules_of(suite.plan, self._histories.values(), at_once)
        minutes = suite.plan.limits.minutes
        ends_at = None if minutes is None else self._began + minutes * 60 - suite.seconds
        self.board = Board(len(suite.problems), at_once, self._rules.share.minutes, ends_at)
        for id, outcome in self._outcomes.items():
            if outcome.state is not State.WAITING:
                self.board.ended[id] = outcome, self._histories[id]
        done = (one for one in self._histories.values() if one.state is State.DONE)
        self.board.took_s += [(one.spent.minutes or 0.0) * 60 for one in done]
        self._began -= suite.seconds

    async def play(self) -> None:
        """Play until nothing is left to do or to spend. Raises what the pool says where no server is left of it."""
        try:
            while True:
                self._fill()
                if not self._tasks:
                    return
                await asyncio.wait(self._tasks, timeout=self._pause(), return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in self._tasks if task.done()]:
                    await self._end(self._tasks.pop(task), task)
                self.store.lasted(self.seconds)
                if self.seconds_left == 0.0:
                    await self._deliver_all()
                    return
        finally:
            await _cancelled(self._tasks)
            self.store.lasted(self.seconds)

    @property
    def seconds(self) -> float:
        """How long the suite has lasted, over all sessions."""
        return self.clock() - self._began

    @property
    def seconds_left(self) -> float | None:
        """Seconds until its minutes are over; None where they are not limited."""
        minutes = self._plan.limits.minutes
        return None if minutes is None else max(minutes * 60 - self.seconds, 0.0)

    @property
    def waiting(self) -> tuple[str, ...]:
        """The problems that have not been played."""
        return tuple(id for id, outcome in self._outcomes.items() if outcome.state is State.WAITING)

    def used(self) -> Iterator[str]:
        """What the suite has used of its limits in all, in words; what is under way counts once it has ended."""
        limits, used = self._plan.limits, [one.spent for one in self._histories.values()]
        if limits.minutes is not None:
            yield f"{self.seconds / 60:.1f} of {limits.minutes:g} minutes"
        dollars = sum(one.dollars or 0.0 for one in used)
        if limits.dollars is not None or dollars:
            yield f"${dollars:.2f}" + (f" of ${limits.dollars:g}" if limits.dollars is not None else "")
        if limits.tokens is not None:
            yield f"{sum(one.tokens or 0 for one in used):,} of {limits.tokens:,} tokens"

    def _pause(self) -> float:
        left = self.seconds_left
        return TICK_S if left is None else min(TICK_S, left)

    def _fill(self) -> None:
        """Let problems begin until enough are under way."""
        while len(self._tasks) < self.board.at_once and (chosen := self._next()):
            self._start(*chosen)

    def _next(self) -> tuple[str, Grant | None] | None:
        """The next problem that waits, with its share; where none waits, one that gets more."""
        left, now = self._left(), list(self._now())
        for id in self.waiting:
            if id in self.board.set_aside:
                continue
            if self._histories[id].grants:
                more = grants.raised(left, [self._histories[id]], self._rules)
                return (id, more) if self.seconds_left != 0.0 else None
            share = grants.first(left, now, id, self._rules)
            return (id, share) if share else None
        begun = [one for one in now if one.problem not in self.board.set_aside]
        more = grants.raised(left, begun, self._rules) or grants.next_grant(left, now, self._rules)
        return (more.problem, more) if more else None

    def _left(self) -> Limits:
        """What nobody has used yet. Minutes of work are those of the wall for each problem under way at a time."""
        limits, used = self._plan.limits, [one.spent for one in self._histories.values()]
        dollars, tokens = (sum(one.dollars or 0.0 for one in used), sum(one.tokens or 0 for one in used))
        return Limits(
            None if limits.dollars is None else max(limits.dollars - dollars, 0.0),
            None if limits.tokens is None else max(limits.tokens - tokens, 0),
            None if self.seconds_left is None else self.seconds_left / 60 * self.board.at_once,
        )

    def _now(self) -> Iterator[History]:
        """The histories, with the time that problems have been under way."""
        for id, one in self._histories.items():
            lane = self.board.lanes.get(id)
            ran = (self.clock() - lane.since) / 60 if lane else 0.0
            yield replace(one, spent=replace(one.spent, minutes=(one.spent.minutes or 0.0) + ran))

    def _start(self, id: str, grant: Grant | None) -> None:
        own = (*self._histories[id].grants, *([grant] if grant else []))
        limits, _ = granted(own)
        outcome = Outcome(id, State.RUNNING, minutes=limits.minutes, dollars=limits.dollars)
        self.store.append(*([grant] if grant else []), outcome)
        self._outcomes[id] = outcome
        self._histories[id] = replace(self._histories[id], state=State.RUNNING, grants=own)
        self.board.begin(Lane(id, self.clock(), limits.minutes))
        self._tasks[asyncio.create_task(self._run(id))] = id
        self.watch(Began(id, grant), self.board)

    async def _run(self, id: str, minutes: float | None = None) -> Found:
        """Play one problem, or go on with it; `minutes` in place of those that it was granted."""
        problem = self._problems[id]
        directory, log = problem.directory(self.store.directory), Log(self.store.directory / LOGS / f"{id}.log")

        def observe(event: Event) -> None:
            if (words := self.words(event)) is not None:
                log.write(words)
            if isinstance(event, Stopped) and event.spent:
                self._spent.add(id)
            if lane := self.board.lanes.get(id):
                lane.observe(event)

        self._spent.discard(id)
        settings = self._settings(id, minutes) | {"pool": self.pool}
        agent = KernelAgent(observe=observe, library=self.library, **settings)
        try:
            if journal.begun(directory):
                _, found = await agent.resume(directory)
            else:
                name, shapes = id.replace("/", "-"), problem.shapes or None
                _, found = await agent.generate_kernel(problem.code, shapes, name=name, run_directory=directory)
        except KernelAgentError as fault:
            log.write(f"{type(fault).__name__}: {fault}")
            raise
        return found

    def _settings(self, id: str, minutes: float | None) -> dict[str, Any]:
        """The settings of a problem's run: those of the suite, with the limits that it was granted."""
        own = self._histories[id]
        limits, rounds = granted(own.grants)
        settings = dict(self._plan.settings)
        most = None if self.seconds_left is None else (own.spent.minutes or 0.0) + self.seconds_left / 60
        known, alone = [one for one in (limits.minutes, most) if one is not None], settings["budget_minutes"]
        if known and (alone is None or min(known) < alone):
            self._short.add(id)
        settings |= {"budget_dollars": limits.dollars, "budget_tokens": limits.tokens}
        settings["budget_minutes"] = minutes or (max(min(known), 1e-3) if known else None)
        settings["num_rounds"] += rounds
        if settings.get("record"):
            settings["record"] = str(Path(settings["record"]) / Path(id).parent)
        return settings

    async def _end(self, id: str, task: asyncio.Task[Found]) -> None:
        """Record what became of a problem. Raises its fault where that is of the disk, or the loss of the pool."""
        fault = task.exception()
        if isinstance(fault, DiskError):
            raise fault
        if isinstance(fault, Unavailable) and not isinstance(fault, ProviderError | Waiting) and await self._is_lost():
            raise fault
        if fault is not None and not isinstance(fault, KernelAgentError):
            log = Log(self.store.directory / LOGS / f"{id}.log")
            log.write("".join(traceback.format_exception(fault)).rstrip())
        self._record(self._outcome(id, fault, None if fault else task.result()))

    def _outcome(self, id: str, fault: BaseException | None, found: Found | None) -> Outcome:
        limits, _ = granted(self._histories[id].grants)
        bare = Outcome(id, State.DONE, minutes=limits.minutes, dollars=limits.dollars)
        if fault is None and found is not None:
            return replace(bare, stopped=found["stopped"], spent=id in self._spent)
        if isinstance(fault, BudgetSpent) and id in self._short:
            return replace(bare, state=State.WAITING)
        name = type(fault).__name__
        reason = str(fault) if isinstance(fault, KernelAgentError) else f"A fault of ours, {name}: {fault}"
        state = State.WAITING if isinstance(fault, Waiting) else State.FAILED
        return replace(bare, state=state, reason=reason, fault=name)

    def _record(self, outcome: Outcome) -> None:
        id = outcome.problem
        if outcome.state is State.FAILED and (lane := self.board.lanes.get(id)):
            outcome = replace(outcome, under_way_minutes=(self.clock() - lane.since) / 60)
        self.store.append(outcome)
        self._outcomes[id] = outcome
        directory = self._problems[id].directory(self.store.directory)
        self._histories[id] = history(directory, outcome, self._histories[id].grants)
        self.board.end(outcome, self._histories[id], self.clock())
        self.watch(Ended(outcome, self._histories[id]), self.board)

    async def _is_lost(self) -> bool:
        """Whether no server of the pool answers any more."""
        try:
            await self.pool.available()
        except KernelAgentError:
            return True
        return False

    async def _deliver_all(self) -> None:
        """The minutes are over: have the best of all that is under way judged a last time and delivered."""
        ids = list(self._tasks.values())
        await _cancelled(self._tasks)
        self._tasks.clear()
        for id in ids:
            outcome = self._outcomes[id]
            self._histories[id] = history(self._problems[id].directory(self.store.directory), outcome, self._grants(id))
        works = {asyncio.create_task(self._run(id, max(self._used(id), 1e-3))): id for id in ids if self._used(id)}
        self._tasks.update(works)
        for id in ids:
            if id not in works.values():
                self._record(Outcome(id, State.WAITING))
        if works:
            await asyncio.wait(works)
        for task, id in works.items():
            self._tasks.pop(task)
            await self._end(id, task)

    def _grants(self, id: str) -> tuple[Grant, ...]:
        return self._histories[id].grants

    def _used(self, id: str) -> float:
        return self._histories[id].spent.minutes or 0.0


async def settle(store: Store, pool: Pool) -> None:
    """Write into a suite's plan what its settings leave open, so that all its runs and sessions have it alike: who
    proposes and, by what the pool's servers see, the target."""
    plan = store.load().plan
    settings = dict(plan.settings)
    settings["provider"] = provider_of(load_settings(**settings))
    settings["target"] = settings.get("target") or await found_target(pool)
    if settings != plan.settings:
        store.replan(replace(plan, settings=settings))


@dataclass(frozen=True, slots=True)
class Log:
    """The log of one problem. That it cannot be written stops nothing."""

    path: Path

    def write(self, words: str) -> None:
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8", errors="replace") as file:
                file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {words}\n")


async def _cancelled(tasks: dict[asyncio.Task[Found], str]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def again(outcome: Outcome) -> Outcome:
    """What a session begins with: what was stopped under way waits, and so does what failed for a reason that may have
    gone, such as a server or a model that did not answer."""
    if outcome.state is State.RUNNING or (outcome.state is State.FAILED and not outcome.stays):
        return Outcome(outcome.problem, State.WAITING)
    return outcome


def rules_of(plan: Plan, histories: Iterable[History], at_once: int) -> Rules:
    """What the budget in all and the limits for one problem come to."""
    settings = load_settings(**plan.settings)
    cap = Limits(settings.budget_dollars, settings.budget_tokens, settings.budget_minutes)
    minutes = plan.limits.minutes
    total = replace(plan.limits, minutes=None if minutes is None else minutes * at_once)
    count = sum(one.state is not State.FAILED or bool(one.grants) for one in histories)
    noise = target_of(settings.target or "").noise
    return Rules(grants.share(total, cap, count, plan.even), cap, plan.even, settings.stop_share, noise)
