"""What a run may cost, and what it has cost: dollars, tokens, minutes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kernel_agent.errors import BudgetSpent

T = TypeVar("T")

MOST_REPLY = 32_768
"""Tokens that a reply may take where a budget holds and no setting says otherwise."""

JUDGING = ("prepare_s", "build_s", "held_s")
"""The stages of a judgement beside its waits, by the server's names."""


@dataclass(frozen=True, slots=True)
class Charge:
    """What one model call cost; dollars are None where the model's price is not known."""

    stage: str
    model: str
    prompt_tokens: int
    reply_tokens: int
    dollars: float | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that a run may cost; None is no limit."""

    dollars: float | None = None
    tokens: int | None = None
    minutes: float | None = None


@dataclass(slots=True)
class Clock:
    """Seconds that a run is charged: those in which anything of it goes on that is not a wait for the device."""

    before: float = 0.0
    _working: int = 0
    _since: float = 0.0

    @property
    def seconds(self) -> float:
        return self.before + (time.monotonic() - self._since if self._working else 0.0)

    @contextmanager
    def work(self) -> Iterator[Callable[[bool], None]]:
        """Something goes on. Whoever does it tells what is yielded whether it waits for its turn."""
        waiting = False
        self._add(1)

        def waits(now: bool) -> None:
            nonlocal waiting
            if now is not waiting:
                waiting = now
                self._add(-1 if waiting else 1)

        try:
            yield waits
        finally:
            self._add(0 if waiting else -1)

    def _add(self, count: int) -> None:
        self.before, self._since = self.seconds, time.monotonic()
        self._working += count


@dataclass(slots=True)
class Budget:
    """The limits of a run and what of them is used. `keep` hears of every charge as it comes."""

    limits: Limits = field(default_factory=Limits)
    dollars: float = 0.0
    tokens: int = 0
    clock: Clock = field(default_factory=Clock)
    keep: Callable[[Charge], None] = lambda _: None
    reserve_s: float = 0.0
    _held: list[tuple[float, int]] = field(default_factory=list)
    _freed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @asynccontextmanager
    async def call(self, dollars: float, tokens: int) -> AsyncIterator[Callable[[Charge], None]]:
        """One model call that costs at most this; what it did cost is told to what is yielded.

        Where it may not fit beside the calls under way, waits until these are paid. Raises BudgetSpent where it may
        not fit at all. A call that ends without being told cost nothing that is known.
        """
        worst = dollars, tokens
        async with self._freed:
            await self._freed.wait_for(lambda: self._fits(worst, with_held=True) or not self._held)
            self._require(worst)
            self._held.append(worst)
        try:
            yield self._charged
        finally:
            self._held.remove(worst)
            async with self._freed:
                self._freed.notify_all()

    def _charged(self, charge: Charge) -> None:
        self.dollars += charge.dollars or 0.0
        self.tokens += charge.prompt_tokens + charge.reply_tokens
        self.keep(charge)

    def _fits(self, worst: tuple[float, int], with_held: bool) -> bool:
        held = self._held if with_held else []
        dollars = self.dollars + worst[0] + sum(one[0] for one in held)
        tokens = self.tokens + worst[1] + sum(one[1] for one in held)
        few = self.limits.dollars is None or dollars <= self.limits.dollars + 1e-9
        return few and (self.limits.tokens is None or tokens <= self.limits.tokens)

    def _require(self, worst: tuple[float, int]) -> None:
        if self._fits(worst, with_held=False):
            return
        limits = self.limits
        if limits.dollars is not None and self.dollars + worst[0] > limits.dollars + 1e-9:
            used, most, flag = f"${self.dollars:.4f} of ${limits.dollars:g}", f"${worst[0]:.4f}", "--budget-dollars"
        else:
            used, most, flag = f"{self.tokens:,} of {limits.tokens:,} tokens", f"{worst[1]:,}", "--budget-tokens"
        raise BudgetSpent(
            f"The budget is spent: {used} are used and the next call may take {most}; "
            f"raise {flag} (or lower --max-tokens), then resume the run."
        )

    def reserve(self, stages: Mapping[str, float]) -> None:
        """Keep back time for a last judgement, which takes about twice what the longest one took beside its waits."""
        took = sum(stages.get(name, 0.0) for name in JUDGING)
        self.reserve_s = max(self.reserve_s, 2 * took)

    def seconds_left(self) -> float | None:
        """Seconds until the search has to end so that the last judgement still fits; None where there is no limit."""
        if self.limits.minutes is None:
            return None
        limit = self.limits.minutes * 60
        return limit - min(self.reserve_s, limit / 2) - self.clock.seconds

    async def within(self, work: Coroutine[Any, Any, T]) -> T:
        """The work's result; where the minutes are over first it is stopped, and BudgetSpent is raised."""
        if self.limits.minutes is None:
            return await work
        task = asyncio.ensure_future(work)
        try:
            while not task.done() and (left := self.seconds_left() or 0.0) > 0:
                await asyncio.wait({task}, timeout=min(left, 1.0))
        finally:
            late = not task.done()
            if late:
                task.cancel()
                await asyncio.wait({task})
                if not task.cancelled():
                    task.exception()  # it is late all the same
        if late:
            minutes = f"the {self.limits.minutes:g} minutes"
            over = self.clock.seconds >= self.limits.minutes * 60
            why = f"{minutes} are over" if over else f"what is left of {minutes} is for the last judgement"
            raise BudgetSpent(f"The budget is spent: {why}; raise --budget-minutes, then resume the run.")
        return task.result()


def spending(charges: Iterable[Charge], judged: Iterable[Mapping[str, float]], seconds: float) -> dict[str, Any]:
    """What a run took as JSON values: in all, for each stage of its model calls, and for each stage of judging.

    A stage that several models answered has a row for each under `by_model`. Dollars are null where the
    price of any model that was asked is not known.
    """
    every = tuple(charges)
    stages = dict.fromkeys(charge.stage for charge in every)
    models = {stage: _stage([charge for charge in every if charge.stage == stage]) for stage in stages}
    judging: dict[str, float] = {}
    for times in judged:
        for name, took in times.items():
            judging[name] = round(judging.get(name, 0.0) + took, 3)
    return {**_sums(every), "seconds": round(seconds, 3), "models": models, "judging": judging}


def _stage(charges: Sequence[Charge]) -> dict[str, Any]:
    models = dict.fromkeys(charge.model for charge in charges)
    rows = {model: _sums([charge for charge in charges if charge.model == model]) for model in models}
    return _sums(charges) | ({"by_model": rows} if len(rows) > 1 else {})


def _sums(charges: Sequence[Charge]) -> dict[str, Any]:
    dollars = [charge.dollars for charge in charges]
    return {
        "calls": len(charges),
        "prompt_tokens": sum(charge.prompt_tokens for charge in charges),
        "reply_tokens": sum(charge.reply_tokens for charge in charges),
        "dollars": None if None in dollars else round(sum(filter(None, dollars)), 6),
        "seconds": round(sum(charge.seconds for charge in charges), 3),
    }
