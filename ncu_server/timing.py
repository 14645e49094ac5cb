"""Reference and candidate alternate on one device (A B B A ...), each in a process of its own."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from ncu_server import schema, stats
from ncu_server.zygote import Child, ChildDied

BLOCK_US = 5_000.0
WARM_UPS = 2
MIN_PAIRS = 6
MAX_PAIRS = 120
MAX_CALLS = 1_000


@dataclass(slots=True)
class Samples:
    """Mean time of a call in each block, microseconds, by side; the blocks of one index are neighbours in time."""

    blocks: dict[str, list[float]] = field(default_factory=dict)
    overclaimed: set[str] = field(default_factory=set)

    def timing(self, side: str) -> schema.Timing:
        i = stats.median_interval(self.blocks[side])
        return schema.Timing(median_us=i.median, low_us=i.low, high_us=i.high, samples=len(self.blocks[side]))

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


async def alternate(
    sides: Mapping[str, Child], candidate: str, tie: float, seconds: float, timeout_s: float
) -> Samples:
    """Sample until every paired interval against `candidate` is narrower than `tie`, or `seconds` are over.

    Sampling stops on the interval's width, never on significance. Every side gets the same nonces in the same order, so
    that after the last block all hold the output for the same values. Raises what Child.ask raises.
    """
    counts: dict[str, int] = {}
    for _ in range(WARM_UPS):
        nonce = secrets.randbits(48)
        for name, child in sides.items():
            times = _times(await child.ask("block", timeout_s=timeout_s, nonce=nonce, count=1), child, 1)
            counts[name] = max(1, min(MAX_CALLS, math.ceil(BLOCK_US / max(fmean(times), 0.1))))
    samples = Samples({name: [] for name in sides})
    began = time.monotonic()
    for pair in range(MAX_PAIRS):
        nonce = secrets.randbits(48)
        order = list(sides) if pair % 2 == 0 else list(sides)[::-1]
        for name in order:
            start = time.perf_counter_ns()
            said = await sides[name].ask("block", timeout_s=timeout_s, nonce=nonce, count=counts[name])
            times = _times(said, sides[name], counts[name])
            outer = (time.perf_counter_ns() - start) / 1e3
            samples.blocks[name].append(fmean(times))
            if sum(times) > outer:
                samples.overclaimed.add(name)
        if pair + 1 >= MIN_PAIRS and (_narrow(samples, candidate, tie) or time.monotonic() - began > seconds):
            break
    return samples


def _times(said: Any, child: Child, count: int) -> list[float]:
    """Microseconds as told by a child, which may tell anything."""
    match said:
        case list() if len(said) == count and all(isinstance(t, float) and 0 < t < math.inf for t in said):
            return said
    raise ChildDied(child, f"the process answered no {count} times")


def _narrow(samples: Samples, candidate: str, tie: float) -> bool:
    return all(
        stats.paired(blocks, samples.blocks[candidate]).width < tie
        for name, blocks in samples.blocks.items()
        if name != candidate
    )
