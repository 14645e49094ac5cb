"""Whom the search asks: who proposes, who measures, and what is known of writing kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from kernel_agent.run.brief import Brief
from kernel_agent.run.module_checks import ModuleCheck
from kernel_agent.run.occupancy import DeviceTime
from kernel_agent.run.types import (
    Baseline,
    Description,
    Device,
    Evaluation,
    Idea,
    Problem,
    Profile,
    Trial,
)
from rag import Answer, Situation


@dataclass(frozen=True, slots=True)
class Stage:
    """What a measurement is at, in the server's words; `ahead` is how many are before it while it waits its turn.

    `at` is the same as data: `device` (it has that to itself), `building`, `waiting`, `preparing`; None where that is
    not told.
    """

    message: str
    ahead: int | None = None
    at: str | None = None


OnProgress = Callable[[Stage], None]
"""Called with each stage of a measurement, as the server reports it."""

OnNotice = Callable[[str], None]
"""Called with one sentence that is worth a line: a server restarted, an index is being built."""


def ignore(_: object) -> None:
    """The callback for whoever wants to know nothing."""


class Proposer(Protocol):
    """Who has ideas and writes code. Given the same brief, a proposer proposes the same."""

    async def ideas(self, brief: Brief, count: int) -> list[Idea]:
        """At most `count` transformations of the brief's parent; fewer where it has no more."""

    async def write(self, brief: Brief, idea: Idea, attempt: int) -> str:
        """One complete candidate module for the idea."""

    async def repair(self, brief: Brief, idea: Idea, trial: Trial, evaluation: Evaluation) -> str | None:
        """The failed trial's module mended, or None where there is nothing to try."""

    async def escalate(self, brief: Brief, idea: Idea, trial: Trial, evaluation: Evaluation) -> str | None:
        """The same from whoever gets the last try, once repairs are spent; None where there is nobody."""


class Bench(Protocol):
    """Who measures. Faults of the kernel are evaluations; faults of the bench are exceptions."""

    async def evaluate(
        self, problem: Problem, source: str, on_progress: OnProgress = ignore, heeds_compiler: bool = False
    ) -> Evaluation:
        """Judge a candidate: build it, check it, time it against eager PyTorch. Where it `heeds_compiler`, one whose
        registers spill ends as a poor build before it runs."""

    async def baselines(
        self, problem: Problem, names: Sequence[str], on_progress: OnProgress = ignore
    ) -> tuple[Baseline, ...]:
        """Time the original in these modes of torch.compile, in one sitting."""

    async def confirm(
        self,
        problem: Problem,
        source: str,
        baselines: Iterable[str],
        on_progress: OnProgress = ignore,
    ) -> Evaluation:
        """Judge it again with new secret inputs in fresh processes, against the baselines (`eager` among them)."""

    async def verify(self, problem: Problem, source: str, on_progress: OnProgress = ignore) -> tuple[ModuleCheck, ...]:
        """Try a file by itself: whether it builds, agrees with the original, and works as a module has to."""

    async def profile(
        self, problem: Problem, sources: Sequence[str], on_progress: OnProgress = ignore
    ) -> list[Profile]:
        """What a profiler says of each candidate. Raises Unprofiled where there is none for this target."""


class Pool(Bench, Protocol):
    """One measuring server or many. Whoever opened it closes it; any number of runs may ask it at once."""

    async def available(self) -> frozenset[str]:
        """The targets that it can judge for."""

    async def describe(
        self, problem: Problem, on_progress: OnProgress = ignore, baselines: Iterable[str] | None = None
    ) -> Description:
        """Trace the problem, count its work and time its baselines, by default all that the target has."""

    def like(self, device: Device) -> Bench:
        """Those of its devices that are of this one's model: only their times are compared.

        Raises Unavailable where it has none.
        """

    @property
    def width(self) -> int:
        """How many devices it judges on."""


@runtime_checkable
class TellsDevices(Protocol):
    """A pool that knows what its devices do all the time."""

    def devices(self) -> tuple[DeviceTime, ...]:
        """What each did since the pool was opened."""


def devices_of(pool: Pool) -> tuple[DeviceTime, ...]:
    """What each of a pool's devices did since it was opened; nothing where it does not tell."""
    return pool.devices() if isinstance(pool, TellsDevices) else ()


class Library(Protocol):
    """What is known of writing kernels."""

    def consult(self, situation: Situation) -> Answer:
        """The passages for a kernel under work; called in a thread."""

    def likeness(self, text: str, others: Sequence[str]) -> Sequence[float]:
        """How like a text each of the others is in meaning, 0 to 1; nothing without vectors. Called in a thread."""
