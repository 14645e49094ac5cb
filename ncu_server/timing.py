"""Reference and candidate alternate on one device (A B B A ...), each in a process of its own."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, geometric_mean, median
from typing import Any

from ncu_server import schema, stats, watch
from ncu_server.zygote import Child, ChildDied

BLOCK_US = 5_000.0
MAX_BLOCK_S = 2.0
SMALL_US = 20.0  # below it the marks around a call weigh too much: calls are timed in groups, on all sides alike
WARM_UPS = 2
WARM_PAIRS = 2
FEW_CALLS = 8  # fewer are long enough as they are
UNTOLD = 1.0  # share of what it tells by which a side's main thread may have computed longer in a warm block,
SLACK_US = 1_000.0  # beside this much a block, and twice what the reference's does a reading
MIN_PAIRS = 6
MAX_PAIRS = 120
MAX_CALLS = 400
BLOCK_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Rotation:
    """How inputs rotate: `sets` of them, which together exceed the last-level cache or not; `flushes` says that the
    device empties the cache before each single call as well."""

    sets: int
    exceeds: bool
    flushes: bool

    def cache(self, group: int) -> schema.Cache:
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

    blocks: dict[str, list[float]] = field(default_factory=dict)
    warm: dict[str, list[float]] = field(default_factory=dict)
    cache: schema.Cache = "cold"
    overclaimed: set[str] = field(default_factory=set)
    underclaimed: set[str] = field(default_factory=set)

    def timing(self, side: str) -> schema.Timing:
        i = stats.median_interval(self.blocks[side])
        return schema.Timing(
            median_us=i.median,
            low_us=i.low,
            high_us=i.high,
            samples=len(self.blocks[side]),
            cache=self.cache,
            warm_us=median(self.warm[side]),
        )

    def speedup(self, baseline: str, side: str) -> schema.Interval:
        """How many times faster `side` is, paired block by block."""
        i = stats.paired(self.blocks[baseline], self.blocks[side])
        return schema.Interval(low=i.low, median=i.median, high=i.high)

    def versus(self, baseline: str, side: str, tie: float) -> schema.Versus:
        ratio = stats.paired(self.blocks[baseline], self.blocks[side])
        return schema.Versus(
            baseline=baseline,
            timing=self.timing(baseline),
            speedup=self.speedup(baseline, side),
            verdict=stats.verdict(ratio, tie),
        )


def combined(taken: Sequence[Samples]) -> Samples:
    """The geometric mean over input shapes, block by block, of the sides that were timed on all of them."""
    sides = [name for name in taken[0].blocks if all(name in s.blocks for s in taken)]
    return Samples(
        {n: _means([s.blocks[n] for s in taken]) for n in sides},
        {n: _means([s.warm[n] for s in taken]) for n in sides},
        "cold" if all(s.cache == "cold" for s in taken) else "resident",
    )


def _means(series: Sequence[Sequence[float]]) -> list[float]:
    """Geometric means place by place, as far as the shortest goes."""
    return [geometric_mean(row) for row in zip(*series, strict=False)]


async def alternate(
    sides: Mapping[str, Child],
    candidate: str,
    rotation: Rotation,
    tie: float,
    seconds: float,
    timeout_s: float = BLOCK_TIMEOUT_S,
    between: Callable[[], None] = lambda: None,
) -> Samples:
    """Sample until every paired interval against `candidate` is narrower than `tie`, or `seconds` are over.

    Sampling stops on the interval's width, never on significance. Every side gets the same nonces in the same order, so
    that after the last block all hold the output for the same values. `between` is called after each pair of blocks.
    Raises what Child.ask raises.
    """
    pace = await _pace(sides, rotation, timeout_s)
    group = next(iter(pace.values())).group
    samples = Samples({n: [] for n in sides}, {n: [] for n in sides}, rotation.cache(group))
    spare: dict[str, list[float]] = {n: [] for n in sides}
    for pair in range(WARM_PAIRS):
        for name in _turn(sides, pair):
            before = watch.computing_ns(sides[name].pid)
            times = await _block(sides[name], secrets.randbits(48), pace[name].longer(), timeout_s, True)
            used = (watch.computing_ns(sides[name].pid) - before) / 1e3
            samples.warm[name].append(fmean(times))
            spare[name].append((used - sum(times) * group) / len(times))
    allowed = 2 * max([0.0, *(max(spare[n]) for n in sides if n != candidate)]) + SLACK_US / pace[candidate].count
    # Where a device computes, the main thread may well be busy for longer than the device.
    if not rotation.flushes and min(spare[candidate]) > allowed + UNTOLD * group * max(samples.warm[candidate]):
        samples.underclaimed.add(candidate)
    began = time.monotonic()
    for pair in range(MAX_PAIRS):
        nonce = secrets.randbits(48)
        for name in _turn(sides, pair):
            start = time.perf_counter_ns()
            times = await _block(sides[name], nonce, pace[name], timeout_s)
            outer = (time.perf_counter_ns() - start) / 1e3
            samples.blocks[name].append(fmean(times))
            if sum(times) * group > outer:
                samples.overclaimed.add(name)
        between()
        if pair + 1 >= MIN_PAIRS and (_narrow(samples, candidate, tie) or time.monotonic() - began > seconds):
            break
    return samples


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


async def _block(child: Child, nonce: int, pace: Pace, timeout_s: float, warm: bool = False) -> list[float]:
    """Microseconds as told by a child, which may tell anything."""
    said: Any = await child.ask(
        "block", timeout_s=timeout_s, nonce=nonce, count=pace.count, group=pace.group, warm=warm
    )
    child.rest()  # nothing of it runs while another side is timed
    match said:
        case list() if len(said) == pace.count and all(isinstance(t, float) and 0 < t < math.inf for t in said):
            return said
    raise ChildDied(child, f"the process answered no {pace.count} times")


def _turn(sides: Mapping[str, Child], pair: int) -> list[str]:
    return list(sides) if pair % 2 == 0 else list(sides)[::-1]


def _narrow(samples: Samples, candidate: str, tie: float) -> bool:
    return all(
        stats.paired(blocks, samples.blocks[candidate]).width < tie
        for name, blocks in samples.blocks.items()
        if name != candidate
    )
