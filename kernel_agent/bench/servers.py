"""A pool of many measuring servers: each call goes to the one that has the least to do, and on where that is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Self, TypeVar

from kernel_agent.bench.client import BenchClient
from kernel_agent.bench.member import Member
from kernel_agent.errors import KernelAgentError, ServerError, Unavailable
from kernel_agent.interfaces import OnNotice, OnProgress, Stage, ignore
from kernel_agent.run.module_checks import ModuleCheck
from kernel_agent.run.occupancy import DeviceTime
from kernel_agent.run.types import Baseline, Description, Device, Evaluation, Problem, Profile

T = TypeVar("T")
Work = Callable[[BenchClient], Awaitable[T]]

ATTEMPTS = 3
"""Servers that one call may be lost with."""
MOST = 8
"""Calls that one server has at once: enough for later ones to be built while an earlier one holds the device. The rest
go to whichever server is done first."""
ELSEWHERE = 2
"""How many calls fewer a server must have to be given a problem that another has prepared: that takes as long."""


class Crew:
    """The members of a pool, and who of them is asked."""

    def __init__(self) -> None:
        self.members: list[Member] = []
        self._moved = asyncio.Event()
        self._waiting = 0

    def changed(self) -> None:
        """A member has room, is lost or is back: whoever waits looks again."""
        self._moved.set()
        self._moved.clear()

    async def ask(
        self,
        among: Callable[[], Sequence[Member]],
        problem: Problem,
        work: Work[T],
        on_progress: OnProgress = ignore,
        rather: Sequence[Member] = (),
    ) -> tuple[T, Member]:
        """The result of a call, and who gave it: the first of `rather` that answers, else whoever of `among` has least
        to do. Raises ServerError where all are lost, or three were lost with this call.
        """
        tried: list[Member] = []
        while len(tried) < ATTEMPTS:
            member = await self._free(among, problem.id, tried, on_progress, rather)
            with member.at_work(problem.id) as client:
                try:
                    return await work(client), member
                except KernelAgentError as fault:
                    if not client.is_lost:
                        raise
                    member.lose(client, str(fault))
                    tried.append(member)
        names = ", ".join(member.name for member in tried)
        raise ServerError(f"One call was lost with {ATTEMPTS} measuring servers ({names}): {tried[-1].why}")

    async def _free(
        self,
        among: Callable[[], Sequence[Member]],
        problem: str,
        tried: Collection[Member],
        on_progress: OnProgress,
        rather: Sequence[Member],
    ) -> Member:
        while True:
            there = [member for member in among() if member.client]
            if not there:
                raise _all_lost(among())
            fresh = [member for member in there if member not in tried] or there
            if chosen := next((member for member in rather if member in fresh), None):
                return chosen
            if roomy := [member for member in fresh if member.in_flight < MOST]:
                return min(roomy, key=lambda member: _load(member, problem))
            self._waiting += 1
            try:
                on_progress(Stage("queued for a server of the pool", self._waiting))
                await self._moved.wait()
            finally:
                self._waiting -= 1


class Servers:
    """Members of a crew as a Bench: those that judge on `card` for a target, or whoever can.

    What one sitting or one card has to hold together stays on one server: the winner's second judgement and what is
    tried of its file, and the modes of torch.compile beside the description.
    """

    def __init__(self, crew: Crew, card: str | None = None) -> None:
        self._crew, self._card = crew, card
        self._judge: list[Member] = []

    async def evaluate(
        self, problem: Problem, source: str, on_progress: OnProgress = ignore, heeds_compiler: bool = False
    ) -> Evaluation:
        """Judge a candidate: build it, check it, time it against eager PyTorch."""
        work: Work[Evaluation] = lambda one: one.evaluate(problem, source, on_progress, heeds_compiler)  # noqa: E731
        return (await self._ask(problem, work, on_progress))[0]

    async def baselines(
        self, problem: Problem, names: Sequence[str], on_progress: OnProgress = ignore
    ) -> tuple[Baseline, ...]:
        """Time the original in these modes of torch.compile, in one sitting."""
        rather = [member for member in self._crew.members if problem.id in member.problems][:1]
        work: Work[tuple[Baseline, ...]] = lambda one: one.baselines(problem, names, on_progress)  # noqa: E731
        return (await self._ask(problem, work, on_progress, rather))[0]

    async def confirm(
        self, problem: Problem, source: str, baselines: Iterable[str], on_progress: OnProgress = ignore
    ) -> Evaluation:
        """Judge it again with new secret inputs in fresh processes, against the baselines."""
        names = list(baselines)
        return await self._judged(problem, lambda one: one.confirm(problem, source, names, on_progress), on_progress)

    async def verify(self, problem: Problem, source: str, on_progress: OnProgress = ignore) -> tuple[ModuleCheck, ...]:
        """Try a file by itself: whether it builds, agrees with the original, and works as a module has to."""
        return await self._judged(problem, lambda one: one.verify(problem, source, on_progress), on_progress)

    async def profile(
        self, problem: Problem, sources: Sequence[str], on_progress: OnProgress = ignore
    ) -> list[Profile]:
        """What a profiler says of each candidate. Raises Unprofiled where there is none for this target."""
        return (await self._ask(problem, lambda one: one.profile(problem, sources, on_progress), on_progress))[0]

    async def _judged(self, problem: Problem, work: Work[T], on_progress: OnProgress) -> T:
        found, member = await self._ask(problem, work, on_progress, self._judge)
        self._judge = [member]
        return found

    async def _ask(
        self, problem: Problem, work: Work[T], on_progress: OnProgress, rather: Sequence[Member] = ()
    ) -> tuple[T, Member]:
        return await self._crew.ask(lambda: self._able(problem.target), problem, work, on_progress, rather)

    def _able(self, target: str) -> list[Member]:
        """Those that judge on the card; where no card is asked for, those that have the target, else all: they say what
        they lack."""
        if self._card is not None:
            return [member for member in self._crew.members if member.card(target) == self._card]
        return [member for member in self._crew.members if member.card(target) is not None] or self._crew.members


class ServerPool(Servers):
    """Many servers as a Pool, used as an async context manager. `members` are made of what `on_change` they are given.

    One that does not answer at first is tried again while the others measure. Raises ServerError where none answers.
    """

    def __init__(self, members: Callable[[Callable[[], None]], Iterable[Member]], on_notice: OnNotice) -> None:
        super().__init__(Crew())
        self._crew.members = list(members(self._crew.changed))
        self._notice = on_notice
        self._told = False

    async def __aenter__(self) -> Self:
        try:
            faults = await asyncio.gather(*map(_opened, self._crew.members))
        except BaseException:
            await self.__aexit__()
            raise
        missing = [(member, fault) for member, fault in zip(self._crew.members, faults, strict=True) if fault]
        if len(missing) == len(self._crew.members):
            raise missing[0][1] if len(missing) == 1 else ServerError(_none_answers(missing))
        for member, fault in missing:
            self._notice(f"The pool begins without the measuring server {member.name}: {fault}")
            member.return_later(str(fault))
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(member.close() for member in self._crew.members))

    async def available(self) -> frozenset[str]:
        """The targets that one of them at least can judge for."""
        seen = (member.environment for member in self._crew.members)
        return frozenset(target for one in seen if one for target in one.cards)

    async def describe(
        self, problem: Problem, on_progress: OnProgress = ignore, baselines: Iterable[str] | None = None
    ) -> Description:
        """Trace the problem, count its work and time its baselines, on one of them."""
        names = None if baselines is None else list(baselines)
        work: Work[Description] = lambda one: one.describe(problem, on_progress, names)  # noqa: E731
        return (await self._ask(problem, work, on_progress))[0]

    @property
    def width(self) -> int:
        """How many devices it judges on."""
        return len(self._crew.members)

    def devices(self) -> tuple[DeviceTime, ...]:
        """What each of its devices did since it was opened."""
        return tuple(member.occupancy.read() for member in self._crew.members)

    def like(self, device: Device) -> Servers:
        """Those that judge on this device's model. Raises Unavailable where none does."""
        cards = Counter(card for member in self._crew.members if (card := member.card(device.target)))
        if device.name not in cards:
            there = ", ".join(cards) or "none"
            raise Unavailable(
                f"The run's times were measured on {device.name}, and the pool has no such device (it has {there}): "
                "resume the run with a pool that has one, or start a new run."
            )
        if len(cards) > 1 and not self._told:
            self._told = True
            counts = ", ".join(f"{count} of {name}" for name, count in cards.items())
            self._notice(f"The devices of the pool are not alike ({counts}): each run stays on the model it began on.")
        return Servers(self._crew, device.name)


def _load(member: Member, problem: str) -> tuple[int, int]:
    """What a member has to do before it would come to a call on a problem; of equals, the one with fewer problems."""
    return member.in_flight + ELSEWHERE * (problem not in member.problems), len(member.problems)


async def _opened(member: Member) -> KernelAgentError | None:
    try:
        await member.open()
    except KernelAgentError as fault:
        return fault
    return None


def _all_lost(members: Sequence[Member]) -> ServerError:
    words = "; ".join(dict.fromkeys(f"{member.name}: {member.why.rstrip('.')}" for member in members))
    return ServerError(f"All measuring servers of the pool are lost ({words}): resume the run once one answers again.")


def _none_answers(missing: Sequence[tuple[Member, KernelAgentError]]) -> str:
    return f"None of the {len(missing)} measuring servers of the pool answers: {missing[0][1]}"
