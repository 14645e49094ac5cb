"""What plans for a GPU hang on, a line each, and only where the problem at hand makes a plan hang on it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kernel_agent.knowledge.situation import operators_of
from kernel_agent.prompts.precision import exact_at_no_cost, has_product
from kernel_agent.run.types import Description, Problem

CLUSTERS = (2, 4, 8)
SPECIAL = re.compile(
    r"exp|log|softmax|tanh|sigmoid|silu|gelu|mish|softplus|elu|erf|sin|cos|sqrt|norm|reciprocal|div|pow|attention|"
    r"cross_entropy"
)
"""Operators that take what an SM has few units for."""

REDUCES = re.compile(r"norm|softmax|sum|mean|var|max|min|prod|logsumexp|attention")
"""Operators whose rows a cluster may share."""

BY_BYTES = 0.5
"""Share of the limit that moving the bytes takes from which on bytes in flight matter."""

STEP, RESERVED_KIB = 8, 1
"""Registers of a thread that a warp gets at a time (256 a warp), and shared memory that a block takes beside its own.

NVIDIA, cuda_occupancy.h of CUDA 13.0 (cudaOccRegAllocationGranularity; reservedSharedMemPerBlock of devices since
sm_80); CUDA C++ Programming Guide, "Compute Capabilities".
"""


@dataclass(frozen=True, slots=True)
class Rates:
    """Results an SM gives in a cycle: NVIDIA, CUDA C++ Programming Guide 13.0, "Arithmetic Instructions", throughput of
    native instructions."""

    fma: int
    special: int
    integer: int


RATES = {
    "sm_80": Rates(fma=64, special=16, integer=64),
    "sm_86": Rates(fma=128, special=16, integer=64),
    "sm_89": Rates(fma=128, special=16, integer=64),
    "sm_90": Rates(fma=128, special=16, integer=64),
}


def chip_facts(problem: Problem, known: Description) -> Iterator[str]:
    """The lines; none for a CPU."""
    product = has_product(problem, known) and not exact_at_no_cost(known)
    yield from _units(problem, known)
    yield from _residency(known)
    yield from _flight(known)
    if product:
        yield from _clock(known)
    if product or any(REDUCES.search(name) for name in operators_of(problem, known)):
        yield from _clusters(known)


def _units(problem: Problem, known: Description) -> Iterator[str]:
    rates = RATES.get(known.device.arch)
    if rates and any(SPECIAL.search(name) for name in operators_of(problem, known)):
        yield (
            f"an SM's results a cycle: {rates.fma} FMA, {rates.integer} integer, "
            f"{rates.special} ex2, lg2, rcp, rsqrt, sin, tanh"
        )


def _residency(known: Description) -> Iterator[str]:
    if known.device.arch in RATES and known.device.target == "cuda":
        yield f"registers come by {STEP} a thread; a block's shared memory costs {RESERVED_KIB} KiB more"


def _flight(known: Description) -> Iterator[str]:
    """Little's law: bytes in flight = bandwidth x latency (J. Little, Operations Research 9(3), 1961)."""
    chip, rate = known.device.chip, known.device.copy_gbps
    moved, limit = known.bytes_us, known.admissible_us
    if chip.sms and chip.latency_ns and rate and moved and limit and moved >= BY_BYTES * limit:
        kib = rate * chip.latency_ns / chip.sms / 1024
        yield (
            f"a read of idle memory takes {chip.latency_ns:,.0f} ns: for a copy's rate an SM needs {kib:.0f} KiB in "
            f"flight (Little's law), under load more"
        )


def _clock(known: Description) -> Iterator[str]:
    if mhz := known.device.chip.tensor_mhz:
        yield f"the SMs' clock under a load of the tensor cores: {mhz:,.0f} MHz"


def _clusters(known: Description) -> Iterator[str]:
    chip = known.device.chip
    if chip.clusters and known.device.target == "cuda":
        fit = ", ".join(f"{count} of {size}" for size, count in zip(CLUSTERS, chip.clusters, strict=False))
        yield f"clusters that run at once, an SM a block: {fit}"
