"""Reference and candidate alternate on one device (A B B A ...), each in a process of its own."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, geometric_mean, median

from ncu_server.judge import stats
from ncu_server.sandbox import limits
from ncu_server.sandbox.child import Child, ChildDied
from ncu_server.targets.target import Resolution
from ncu_server.wire import evaluation
from ncu_server.worker.answers import Inputs
from ncu_server.worker.timing_verbs import Block

BLOCK_US = 5_000.0
MAX_BLOCK_S = 2.0
SMALL_US = 20.0  # below it the marks around a call weigh too much: calls are timed in groups, on all sides alike
WARM_UPS = 2
WARM_PAIRS = 3
FEW_CALLS = 8  # fewer are long enough as they are
SLACK_US, AROUND_US = 1_000.0, 50.0  # that a side's main thread may compute beside what it tells: a block, a reading
VISITS = 4  # of a draw that was unseen: who keeps results at the second visit has them at the third
MIN_PAIRS = 6
MAX_PAIRS = 120
MAX_CALLS = 400
BLOCK_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Rotation:
    """How inputs rotate: `sets` of them, which together exceed the last-level cache or not; `flushes` says that the
    device empties the cache before each single call as well, `changes` that each call gets other values throughout."""

    sets: int
    exceeds: bool
    flushes: bool
    changes: bool = True

    def cache(self, group: int) -> evaluation.Cache:
        """Where the inputs of a call lie when it begins."""
        return "cold" if self.exceeds or (self.flushes and group == 1) else "resident"


@dataclass(frozen=True, slots=True)
class Pace:
    """Calls of one block: `count` readings of the clock, each around `group` calls."""

    count: int
    group: int

    def longer(self) -> Pace:
        """For blocks in which nothing but the calls takes time, so that the outer clock can bound them closely."""
        return Pace(min(4 * self.count, MAX_CALLS), self.group) if self.count >= FEW_CALLS else self


@dataclass(slots=True)
class Samples:
    """Mean time of a call in each block, microseconds, by side; the blocks of one index are neighbours in time.

    `warm` are blocks in which every call had the same inputs and nothing was flushed.
    """

    resolution: Resolution
    blocks: dict[str, list[float]] = field(default_factory=dict)
    warm: dict[str, list[float]] = field(default_factory=dict)
    cache: evaluation.Cache = "cold"
    overclaimed: set[str] = field(default_factory=set)
    underclaimed: set[str] = field(default_factory=set)

    def timing(self, side: str) -> evaluation.Timing:
        i = stats.median_interval(self.blocks[side])
        return evaluation.Timing(
            median_us=i.median,
            low_us=i.low,
            high_us=i.high,
            samples=len(self.blocks[side]),
            cache=self.cache,
            warm_us=median(self.warm[side]),
        )

    def speedup(self, baseline: str, side: str) -> evaluation.Interval:
        """How many times faster `side` is, paired block by block."""
        i = self._ratio(baseline, side)
        return evaluation.Interval(low=i.low, median=i.median, high=i.high)

    def versus(self, baseline: str, side: str) -> evaluation.Versus:
        return evaluation.Versus(
            baseline=baseline,
            timing=self.timing(baseline),
            speedup=self.speedup(baseline, side),
            verdict=stats.verdict(self._ratio(baseline, side), self.resolution.tie),
        )

    def _ratio(self, baseline: str, side: str) -> stats.Interval:
        return stats.paired(self.blocks[baseline], self.blocks[side], self.resolution.apart_us)


def combine(taken: Sequence[Samples]) -> Samples:
    """The geometric mean over input shapes, block by block, of the sides that were timed on all of them."""
    sides = [name for name in taken[0].blocks if all(name in s.blocks for s in taken)]
    return Samples(
        taken[0].resolution,
        {n: _means([s.blocks[n] for s in taken]) for n in sides},
        {n: _means([s.warm[n] for s in taken]) for n in sides},
        "cold" if all(s.cache == "cold" for s in taken) else "resident",
    )


def _means(series: Sequence[Sequence[float]]) -> list[float]:
    """Geometric means place by place, as far as the shortest goes."""
    return [geometric_mean(row) for row in zip(*series, strict=False)]


async def _unaudited(_: int) -> None:
    pass


async def alternate(
    sides: Mapping[str, Child],
    candidate: str,
    rotation: Rotation,
    resolution: Resolution,
    seconds: float,
    timeout_s: float = BLOCK_TIMEOUT_S,
    between: Callable[[], None] = lambda: None,
    audit: Callable[[int], Awaitable[None]] = _unaudited,
) -> Samples:
    """Sample until every paired interval against `candidate` is narrower than the tie, or `seconds` are over.

    Sampling stops on the interval's width, never on significance. Every side gets the same nonces in the same order, so
    that after the last block all hold the output for the same values. `between` is called after each pair of blocks,
    and `audit` with its number, while all still hold what its last call gave. Raises what these and Child.ask raise.
    """
    pace = await _pace(sides, rotation, timeout_s)
    group = next(iter(pace.values())).group
    samples = Samples(resolution, {n: [] for n in sides}, {n: [] for n in sides}, rotation.cache(group))
    spare: dict[str, list[float]] = {n: [] for n in sides}  # of warm blocks, in which nothing but the calls takes time
    longer = pace if rotation.flushes else {name: one.longer() for name, one in pace.items()}
    for pair in range(WARM_PAIRS):
        for name in _turn(sides, pair):
            done = await _measured(sides[name], secrets.randbits(48), longer[name], timeout_s, "warm")
            samples.warm[name].append(fmean(done.times))
            spare[name].append(done.spare_us)
    began = time.monotonic()
    for pair in range(MAX_PAIRS):
        nonce = secrets.randbits(48)
        for name in _turn(sides, pair):
            done = await _measured(sides[name], nonce, pace[name], timeout_s)
            samples.blocks[name].append(fmean(done.times))
            if done.overclaims:
                samples.overclaimed.add(name)
        between()
        await audit(pair)
        if pair + 1 >= MIN_PAIRS and (_narrow(samples, candidate) or time.monotonic() - began > seconds):
            break
    # Where a device computes, the main thread may well be busy for longer than the device.
    if not rotation.flushes and computes_untold(spare, candidate, fmean(samples.warm[candidate]) * group, longer):
        samples.underclaimed.add(candidate)
    return samples


@dataclass(frozen=True, slots=True)
class Measured:
    """A block as a child tells it, beside what is seen from outside: `spare_us` is how much longer than it tells the
    child's main thread computed, by reading of its clock."""

    times: list[float]
    spare_us: float
    overclaims: bool


async def time_visits(sides: Mapping[str, Child], draws: int, group: int, timeout_s: float) -> dict[str, list[float]]:
    """Mean microseconds of a call at each of VISITS visits of the draws that the sides have taken, by side; `group`
    calls share a reading of the clock. Raises what Child.ask raises."""
    nonce, found, readings = secrets.randbits(48), {}, max(1, draws // group)
    for name, child in sides.items():
        times = await _block(child, nonce, Pace((1 + VISITS) * readings, group), timeout_s, "unseen")
        found[name] = [fmean(times[i : i + readings]) for i in range(readings, len(times), readings)]
    return found


async def _measured(child: Child, nonce: int, pace: Pace, timeout_s: float, inputs: Inputs = "cold") -> Measured:
    before, start = limits.computing_ns(child.pid), time.perf_counter_ns()
    times = await _block(child, nonce, pace, timeout_s, inputs)
    outer, used = (time.perf_counter_ns() - start) / 1e3, (limits.computing_ns(child.pid) - before) / 1e3
    told = sum(times) * pace.group
    return Measured(times, (used - told) / pace.count, told > outer)


def computes_untold(spare: Mapping[str, list[float]], candidate: str, told: float, pace: Mapping[str, Pace]) -> bool:
    """Whether in each single warm block the candidate computed for longer than a reading of its clock told (`told`,
    microseconds), by more than that much and twice what a reference did: what a busy machine adds to some blocks proves
    nothing. References are held against it by blocks: most of what surrounds calls is done once a block."""
    count = pace[candidate].count
    others = [median(spare[n]) * pace[n].count / count for n in spare if n != candidate]
    return min(spare[candidate]) > told + AROUND_US + SLACK_US / count + 2 * max([0.0, *others])


async def _pace(sides: Mapping[str, Child], rotation: Rotation, timeout_s: float) -> dict[str, Pace]:
    """Warm each side up, and from its last warm-up say how many calls make a block.

    The outer clock bounds a block too: a side that tells too short times does not get more of them for it.
    """
    single, outer = {}, {}
    for _ in range(WARM_UPS):
        nonce = secrets.randbits(48)
        for name, child in sides.items():
            began = time.perf_counter()
            single[name] = max(fmean(await _block(child, nonce, Pace(1, 1), timeout_s)), 0.1)
            outer[name] = time.perf_counter() - began
    group = rotation.sets if min(single.values()) < SMALL_US else 1
    calls = {
        name: min(MAX_CALLS, math.ceil(BLOCK_US / us), max(1, int(MAX_BLOCK_S / outer[name])))
        for name, us in single.items()
    }
    return {name: Pace(math.ceil(n / group), group) for name, n in calls.items()}


async def _block(child: Child, nonce: int, pace: Pace, timeout_s: float, inputs: Inputs = "cold") -> list[float]:
    """Microseconds as told by a child, which may tell anything."""
    times = await child.ask(Block(nonce, pace.count, pace.group, inputs), timeout_s=timeout_s)
    child.rest()  # nothing of it runs while another side is timed
    if len(times) == pace.count and all(0 < t < math.inf for t in times):
        return times
    raise ChildDied(child, f"the process answered no {pace.count} times")


def _turn(sides: Mapping[str, Child], pair: int) -> list[str]:
    return list(sides) if pair % 2 == 0 else list(sides)[::-1]


def _narrow(samples: Samples, candidate: str) -> bool:
    return all(
        stats.paired(blocks, samples.blocks[candidate]).width < samples.resolution.tie
        for name, blocks in samples.blocks.items()
        if name != candidate
    )
