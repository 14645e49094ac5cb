"""What is wrong with a launch: each trouble by its own counters, in words, with the line that causes most of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ncu_server.profiler import metrics
from ncu_server.profiler.facts import KernelFacts, LineFact
from ncu_server.profiler.metrics import Metrics, number, value
from ncu_server.wire.profiling import Finding, SourceLine

WASTE_PCT, SPILL_PCT = 30.0, 1.0
FILLED_SMS, SMALL_WAVE, POOR_TAIL_PCT, MANY_WAVES = 0.75, 0.25, 20.0, 5.0
LOW_PCT, POOR_ISSUE_PCT = 35.0, 60.0
FMA_PCT, IDLE_TENSOR_PCT, FLOP_SHARE, MUCH_REUSE = 40.0, 1.0, 0.15, 10.0
BUSY_MEMORY_PCT, WAITING_PCT = 30.0, 25.0
FULL_LANES, FEW_LANES = 32, 20.0
BARRIER_PCT, FED_PCT = 30.0, 50.0  # beside busy tensor cores it is one role's warps that wait, and nothing is lost
SECTOR, IDEAL_SECTORS = 32, 16.0

Where = Callable[[str], int | None]


@dataclass(frozen=True, slots=True)
class Use:
    """How much traffic was beyond need; `ways` is how many turns a shared-memory access took on average."""

    global_excess_pct: float | None
    shared_excess_pct: float | None
    ways: float | None
    local_instructions: float | None


def use_of_memory(known: Metrics) -> Use:
    """By the instructions' own counts where they were collected, else by the units'."""
    sectors, ideal = value(known, "global_sectors"), value(known, "global_ideal")
    turns, least = value(known, "shared_wavefronts"), value(known, "shared_ideal")
    if turns is None and (conflicts := value(known, "bank_conflicts")) is not None:
        turns = value(known, "bank_wavefronts")
        least = turns - conflicts if turns is not None else None
    local = [value(known, row) for row in ("local_loads", "local_stores")]
    return Use(
        _excess(sectors, ideal),
        _excess(turns, least),
        ratio(turns, least),
        None if None in local else sum(count or 0 for count in local),
    )


def ratio(a: float | None, b: float | None) -> float | None:
    """a over b, where there is something to divide by."""
    return a / b if a is not None and b else None


def _excess(taken: float | None, needed: float | None) -> float | None:
    return 100 * max(0.0, 1 - needed / taken) if taken and needed is not None else None


def found_in(kernel: KernelFacts, where: Where) -> list[Finding]:
    """All troubles of a launch, those of traffic first. `where` finds a line's text in the candidate."""
    known = kernel.metrics
    told = (_small_grid, _spills, _uncoalesced, _bank_conflicts, _low_occupancy, _tensor_idle, _divergence, _barriers)
    return [finding for tell in told for finding in tell(known, kernel.lines, where)]


def limiter(known: Metrics) -> str | None:
    """What allows the fewest blocks on an SM; all of them where several do."""
    limits = {name: n for name in metrics.LIMITS if (n := number(known, metrics.LIMIT + name)) is not None}
    least = min(limits.values(), default=None)
    return " and ".join(name for name, n in limits.items() if n == least).replace("_", " ") or None


def _place(line: LineFact | None, where: Where) -> SourceLine | None:
    if line is None:
        return None
    file = line.file.replace("\\", "/").rpartition("/")[2] if line.file else None
    return SourceLine(file=file, line=line.line, candidate_line=where(line.text), text=line.text)


def _counts(known: Metrics, busy: str, stalls: tuple[str, ...]) -> bool:
    """Whether waste matters: the unit is busy, or warps wait for it."""
    waits = [number(known, metrics.STALL + reason + metrics.PER_ISSUE) for reason in stalls]
    share = ratio(sum(w or 0 for w in waits), value(known, "latency"))
    used = value(known, busy)
    return (used is None and share is None) or (used or 0) >= BUSY_MEMORY_PCT or 100 * (share or 0) >= WAITING_PCT


def _worst(lines: list[LineFact], weight: Callable[[LineFact], int]) -> LineFact | None:
    worst = max(lines, key=weight, default=None)
    return worst if worst is not None and weight(worst) > 0 else None


def _small_grid(known: Metrics, lines: list[LineFact], where: Where) -> Iterator[Finding]:
    blocks, sms, waves = (value(known, row) for row in ("blocks", "sms", "waves"))
    if blocks is not None and sms and blocks < FILLED_SMS * sms:
        yield Finding(trouble="small_grid", words=f"{blocks:.0f} blocks leave {sms - blocks:.0f} of {sms:.0f} SMs idle")
    elif waves and waves < SMALL_WAVE:
        yield Finding(trouble="small_grid", words=f"the grid fills {waves:.2f} of one wave: too little at once")
    elif waves and 1 < waves < MANY_WAVES and (idle := 100 * (1 - waves / math.ceil(waves))) >= POOR_TAIL_PCT:
        words = f"{waves:.2f} waves of blocks: in the last one SMs run dry, up to {idle:.0f} % of the launch's capacity"
        yield Finding(trouble="tail", words=words)


def _spills(known: Metrics, lines: list[LineFact], where: Where) -> Iterator[Finding]:
    local, all_of = use_of_memory(known).local_instructions, value(known, "instructions")
    share = ratio(local, all_of)
    if not local or (share is not None and 100 * share < SPILL_PCT):
        return
    spilled, registers = value(known, "spill_instructions"), value(known, "registers")
    what = "registers spilled to" if spilled else "spilled registers, or arrays indexed at run time, in"
    words = f"{local:.3g} loads and stores of {what} local memory"
    words += f", {100 * share:.0f} % of all instructions" if share is not None else ""
    words += f"; {registers:.0f} registers a thread" if registers else ""
    yield Finding(trouble="spills", words=words, place=_place(_worst(lines, lambda r: r.local_sectors), where))


def _uncoalesced(known: Metrics, lines: list[LineFact], where: Where) -> Iterator[Finding]:
    excess = use_of_memory(known).global_excess_pct
    each = ratio(value(known, "load_sectors"), value(known, "load_requests"))
    if excess is None and each is not None and each > IDEAL_SECTORS:
        yield Finding(trouble="uncoalesced", words=f"a global load touches {each:.1f} sectors of {SECTOR} bytes")
    elif (
        excess is not None and excess >= WASTE_PCT and _counts(known, "memory_pct", ("long_scoreboard", "lg_throttle"))
    ):
        words = f"{excess:.0f} % of the sectors that global loads and stores move are not needed (uncoalesced)"
        words += f"; a load touches {each:.1f} sectors" if each else ""
        worst = _worst(lines, lambda r: r.global_sectors - r.global_ideal)
        yield Finding(trouble="uncoalesced", words=words, place=_place(worst, where))


def _bank_conflicts(known: Metrics, lines: list[LineFact], where: Where) -> Iterator[Finding]:
    use = use_of_memory(known)
    if not use.ways or (use.shared_excess_pct or 0) < WASTE_PCT:
        return
    if _counts(known, "l1_pct", ("short_scoreboard", "mio_throttle")):
        words = f"shared memory is accessed in {use.ways:.1f} turns where one would do (bank conflicts)"
        worst = _worst(lines, lambda r: r.shared_wavefronts - r.shared_ideal)
        yield Finding(trouble="bank_conflicts", words=words, place=_place(worst, where))


def _low_occupancy(known: Metrics, lines: list[LineFact], where: Where) -> Iterator[Finding]:
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


def _tensor_idle(known: Metrics, lines: list[LineFact], where: Where) -> Iterator[Finding]:
    """Much multiply-add on data that is used again and again is what a matrix product looks like from here."""
    tensor, fma = value(known, "tensor_pct"), value(known, "fma_pct")
    if tensor is None or fma is None or tensor >= IDLE_TENSOR_PCT:
        return
    share, reuse = fma_share(known), flops_per_byte(known)
    if (share >= FLOP_SHARE and reuse >= MUCH_REUSE) if share is not None and reuse is not None else fma >= FMA_PCT:
        words = f"tensor cores idle while the FMA pipe is busy {fma:.0f} %: if this is a matrix product, use them"
        yield Finding(trouble="tensor_idle", words=words, place=_place(_worst(lines, lambda r: r.samples), where))


def flops(known: Metrics) -> float | None:
    """Single precision operations a second."""
    rates = [number(known, name) for name in metrics.FLOP_RATES]
    clock = number(known, metrics.FLOP_CLOCK)
    if clock is None or None in rates:
        return None
    return clock * sum((rate or 0) * weight for rate, weight in zip(rates, metrics.FLOP_RATES.values(), strict=True))


def flops_per_byte(known: Metrics) -> float | None:
    """Single precision operations for each byte of DRAM."""
    return ratio(flops(known), value(known, "dram_bytes_per_second"))


def fma_share(known: Metrics) -> float | None:
    """Multiply-adds a cycle over the most that there can be."""
    return ratio(number(known, metrics.FFMA), number(known, metrics.FLOP_PEAK))


def _divergence(known: Metrics, lines: list[LineFact], where: Where) -> Iterator[Finding]:
    lanes = value(known, "active_lanes")
    if lanes is not None and lanes < FEW_LANES:
        words = f"on average {lanes:.0f} of {FULL_LANES} threads of a warp take part in an instruction"
        yield Finding(trouble="divergence", words=words)


def _barriers(known: Metrics, lines: list[LineFact], where: Where) -> Iterator[Finding]:
    waits, all_of = number(known, f"{metrics.STALL}barrier{metrics.PER_ISSUE}"), value(known, "latency")
    share, fed = ratio(waits, all_of), (value(known, "tensor_pct") or 0.0) >= FED_PCT
    if share is not None and 100 * share >= BARRIER_PCT and not fed:
        worst = _worst(lines, lambda r: r.stalls.get("barrier", 0))
        words = f"warps wait {100 * share:.0f} % of their time for others at a barrier"
        yield Finding(trouble="barriers", words=words, place=_place(worst, where))
