"""What is wrong with a launch: each trouble by its own counters, in words, with the line that causes most of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from ncu_server.profiler import instruction_findings, metrics
from ncu_server.profiler.evidence import (
    TRAFFIC,
    Where,
    flops_per_byte,
    fma_share,
    limiter,
    matters,
    place,
    ratio,
    stalled_pct,
    use_of_memory,
    worst,
    worst_by_opcode,
)
from ncu_server.profiler.facts import KernelFacts
from ncu_server.profiler.metrics import value
from ncu_server.wire.profiling import Finding

WASTE_PCT, SPILL_PCT = 30.0, 1.0
FILLED_SMS, SMALL_WAVE, POOR_TAIL_PCT, MANY_WAVES = 0.75, 0.25, 20.0, 5.0
LOW_PCT, POOR_ISSUE_PCT = 35.0, 60.0
FMA_PCT, IDLE_TENSOR_PCT, FLOP_SHARE, MUCH_REUSE = 40.0, 1.0, 0.15, 10.0
FULL_LANES, FEW_LANES = 32, 20.0
BARRIER_PCT, FED_PCT = 30.0, 50.0  # beside busy tensor cores it is one role's warps that wait, and nothing is lost
SECTOR, IDEAL_SECTORS = 32, 16.0
MANY_LOADS = 8.0  # a neighbourhood of 3 by 3 loads each value nine times
BUSY_PCT = 60.0  # ncu's rules call a unit well used from here on (SOLBottleneck)
UNEVEN_PCT, UNEVEN_CYCLES = 25.0, 20_000.0  # in so many cycles (12 us) a launch's own start and end do not show
FULL_PCT, ONE_WARP = 50.0, 1.0  # an issue slot is lost in each cycle in which no warp is eligible

Row = Callable[[KernelFacts, Where], Iterator[Finding]]


def found_in(kernel: KernelFacts, where: Where) -> list[Finding]:
    """All troubles of a launch, those of traffic first. `where` finds a line's text in the candidate."""
    found = [finding for row in ROWS for finding in row(kernel, where)]
    if not {"small_grid", "tail"} & {finding.trouble for finding in found}:
        found += _uneven_sms(kernel, where)
    return found or list(_few_eligible(kernel, where))


def _small_grid(kernel: KernelFacts, where: Where) -> Iterator[Finding]:
    known = kernel.metrics
    blocks, sms, waves = (value(known, row) for row in ("blocks", "sms", "waves"))
    if blocks is not None and sms and blocks < FILLED_SMS * sms:
        yield Finding(trouble="small_grid", words=f"{blocks:.0f} blocks leave {sms - blocks:.0f} of {sms:.0f} SMs idle")
    elif waves and waves < SMALL_WAVE:
        yield Finding(trouble="small_grid", words=f"the grid fills {waves:.2f} of one wave: too little at once")
    elif waves and 1 < waves < MANY_WAVES and (idle := 100 * (1 - waves / math.ceil(waves))) >= POOR_TAIL_PCT:
        words = f"{waves:.2f} waves of blocks: in the last one SMs run dry, up to {idle:.0f} % of the launch's capacity"
        yield Finding(trouble="tail", words=words)


def _spills(kernel: KernelFacts, where: Where) -> Iterator[Finding]:
    known = kernel.metrics
    local, all_of = use_of_memory(known).local_instructions, value(known, "instructions")
    share = ratio(local, all_of)
    if not local or (share is not None and 100 * share < SPILL_PCT):
        return
    spilled, registers = value(known, "spill_instructions"), value(known, "registers")
    what = "registers spilled to" if spilled else "spilled registers, or arrays indexed at run time, in"
    words = f"{local:.3g} loads and stores of {what} local memory"
    words += f", {100 * share:.0f} % of all instructions" if share is not None else ""
    words += f"; {registers:.0f} registers a thread" if registers else ""
    yield Finding(trouble="spills", words=words, place=place(worst(kernel.lines, lambda r: r.local_sectors), where))


def _uncoalesced(kernel: KernelFacts, where: Where) -> Iterator[Finding]:
    known = kernel.metrics
    excess = use_of_memory(known).global_excess_pct
    each = ratio(value(known, "load_sectors"), value(known, "load_requests"))
    stored = ratio(value(known, "store_sectors"), value(known, "store_requests"))
    if excess is None and each is not None and each > IDEAL_SECTORS:
        yield Finding(trouble="uncoalesced", words=f"a global load touches {each:.1f} sectors of {SECTOR} bytes")
    elif excess is not None and excess >= WASTE_PCT and matters(known, "memory_pct", *TRAFFIC):
        words = f"{excess:.0f} % of the sectors that global loads and stores move are not needed (uncoalesced)"
        kind, most = max(("load", each or 0.0), ("store", stored or 0.0), key=lambda found: found[1])
        words += f"; a {kind} touches {most:.1f} sectors" if most else ""
        blamed = worst(kernel.lines, lambda r: r.global_sectors - r.global_ideal)
        yield Finding(trouble="uncoalesced", words=words, place=place(blamed, where))


def _bank_conflicts(kernel: KernelFacts, where: Where) -> Iterator[Finding]:
    known = kernel.metrics
    use = use_of_memory(known)
    if not use.ways or (use.shared_excess_pct or 0) < WASTE_PCT:
        return
    if matters(known, "l1_pct", "short_scoreboard", "mio_throttle"):
        words = f"shared memory is accessed in {use.ways:.1f} turns where one would do (bank conflicts)"
        blamed = worst(kernel.lines, lambda r: r.shared_wavefronts - r.shared_ideal)
        yield Finding(trouble="bank_conflicts", words=words, place=place(blamed, where))


def _low_occupancy(kernel: KernelFacts, where: Where) -> Iterator[Finding]:
    known = kernel.metrics
    possible, issue = value(known, "possible_occupancy_pct"), value(known, "issue_pct")
    tensor, by = value(known, "tensor_pct") or 0.0, limiter(known)
    idle = (issue is None or issue < POOR_ISSUE_PCT) and tensor < POOR_ISSUE_PCT
    if possible is None or possible > LOW_PCT or not idle:
        return
    amount = {
        "registers": ("registers", "registers a thread"),
        "shared mem": ("dynamic_shared", "bytes of shared memory"),
    }
    row, unit = amount.get(by or "", ("threads", "threads a block"))
    size = value(known, row)
    if by == "shared mem":
        size = (size or 0.0) + (value(known, "static_shared") or 0.0)
    words = f"at most {possible:.0f} % occupancy, limited by {by or 'the launch'}"
    yield Finding(trouble="low_occupancy", words=words + (f" ({size:.0f} {unit})" if size else ""))


def _tensor_idle(kernel: KernelFacts, where: Where) -> Iterator[Finding]:
    """Much multiply-add on data that is used again and again is what a matrix product looks like from here."""
    known = kernel.metrics
    tensor, fma = value(known, "tensor_pct"), value(known, "fma_pct")
    if tensor is None or fma is None or tensor >= IDLE_TENSOR_PCT:
        return
    share, reuse = fma_share(known), flops_per_byte(known)
    if (share >= FLOP_SHARE and reuse >= MUCH_REUSE) if share is not None and reuse is not None else fma >= FMA_PCT:
        words = f"tensor cores idle while the FMA pipe is busy {fma:.0f} %: if this is a matrix product, use them"
        yield Finding(trouble="tensor_idle", words=words, place=place(worst(kernel.lines, lambda r: r.samples), where))


def _divergence(kernel: KernelFacts, where: Where) -> Iterator[Finding]:
    known = kernel.metrics
    lanes = value(known, "active_lanes")
    if lanes is not None and lanes < FEW_LANES:
        words = f"on average {lanes:.0f} of {FULL_LANES} threads of a warp take part in an instruction"
        blamed = worst(kernel.lines, lambda r: r.lanes_lost)
        yield Finding(trouble="divergence", words=words, place=place(blamed, where))


def _barriers(kernel: KernelFacts, where: Where) -> Iterator[Finding]:
    known = kernel.metrics
    share, fed = stalled_pct(known, "barrier"), (value(known, "tensor_pct") or 0.0) >= FED_PCT
    if share is not None and share >= BARRIER_PCT and not fed:
        blamed = worst(kernel.lines, lambda r: r.barrier_waits)
        words = f"warps wait {share:.0f} % of their time for others at a barrier"
        yield Finding(trouble="barriers", words=words, place=place(blamed, where))


def _redundant_loads(kernel: KernelFacts, where: Where) -> Iterator[Finding]:
    """The caches are empty when ncu starts a launch, so that what comes from DRAM is about what has to be read."""
    known = kernel.metrics
    loaded, read = value(known, "load_sectors"), value(known, "dram_read")
    times = ratio(loaded * SECTOR, read) if loaded is not None else None
    caches = {name: value(known, row) or 0.0 for name, row in (("L1", "l1_pct"), ("L2", "l2_pct"))}
    busiest = max(caches, key=lambda name: caches[name])
    if times is None or times < MANY_LOADS or caches[busiest] < BUSY_PCT or (value(known, "dram_pct") or 0) >= BUSY_PCT:
        return
    words = f"each byte read from DRAM is loaded {times:.0f} times, and {busiest} is busy {caches[busiest]:.0f} %"
    words += ": keep it in registers or in shared memory"
    blamed = worst(
        [line for line in kernel.lines if worst_by_opcode([line], instruction_findings.GLOBAL_LOAD)],
        lambda r: r.global_sectors,
    )
    yield Finding(trouble="redundant_loads", words=words, place=place(blamed, where))


def _uneven_sms(kernel: KernelFacts, where: Where) -> Iterator[Finding]:
    mean, most = value(kernel.metrics, "sm_cycles"), value(kernel.metrics, "sm_cycles_most")
    busy = ratio(mean, most)
    if busy is not None and most is not None and most >= UNEVEN_CYCLES and 100 * (1 - busy) >= UNEVEN_PCT:
        words = f"the mean SM works {100 * busy:.0f} % as long as the one that works longest: blocks differ in work"
        blamed = worst(kernel.lines, lambda r: r.samples)
        yield Finding(trouble="uneven_sms", words=words, place=place(blamed, where))


def _few_eligible(kernel: KernelFacts, where: Where) -> Iterator[Finding]:
    """What latency is like where no other row explains it."""
    known = kernel.metrics
    held, eligible, issue = (value(known, row) for row in ("occupancy_pct", "eligible_warps", "issue_pct"))
    units = [value(known, row) or 0.0 for row in ("compute_pct", "memory_pct", "tensor_pct")]
    if held is None or eligible is None or issue is None:
        return
    if held >= FULL_PCT and eligible < ONE_WARP and issue < POOR_ISSUE_PCT and max(units) < BUSY_PCT:
        waits = {reason: stalled_pct(known, reason) or 0.0 for reason in metrics.WAITING_FOR}
        reason = max(waits, key=lambda name: waits[name])
        words = f"{held:.0f} % occupancy, but on average only {eligible:.2f} warps of a scheduler are ready to issue"
        words += f": {waits[reason]:.0f} % of their time they wait for {metrics.WAITING_FOR[reason]}"
        blamed = worst(kernel.lines, lambda r: r.samples)
        yield Finding(trouble="few_eligible", words=words, place=place(blamed, where))


ROWS: tuple[Row, ...] = (
    _small_grid,
    _spills,
    _uncoalesced,
    _bank_conflicts,
    _redundant_loads,
    *instruction_findings.ROWS,
    _low_occupancy,
    _tensor_idle,
    _divergence,
    _barriers,
)
"""The rows that stand for themselves; `_uneven_sms` and `_few_eligible` speak where others do not explain it."""
