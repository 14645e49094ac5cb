"""What the findings rest on: numbers worked out of a launch's counters, and the line that has most of something."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ncu_server.profiler import metrics
from ncu_server.profiler.facts import KernelFacts, LineFact, OpcodeFact
from ncu_server.profiler.metrics import Metrics, number, value
from ncu_server.wire.profiling import SourceLine

BUSY_MEMORY_PCT, WAITING_PCT = 30.0, 25.0
TRAFFIC = ("long_scoreboard", "lg_throttle")
"""What warps wait for that wait for global memory."""

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


def limiter(known: Metrics) -> str | None:
    """What allows the fewest blocks on an SM; all of them where several do."""
    limits = {name: n for name in metrics.LIMITS if (n := number(known, metrics.LIMIT + name)) is not None}
    least = min(limits.values(), default=None)
    return " and ".join(name for name, n in limits.items() if n == least).replace("_", " ") or None


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


def stalled_pct(known: Metrics, *reasons: str) -> float | None:
    """Percent of the warps' time between two instructions that goes to these reasons."""
    waits = [number(known, metrics.STALL + reason + metrics.PER_ISSUE) for reason in reasons]
    share = ratio(sum(wait or 0 for wait in waits), value(known, "latency"))
    return 100 * share if share is not None else None


def matters(known: Metrics, busy: str, *stalls: str) -> bool:
    """Whether waste matters: the unit is busy, or warps wait for it."""
    used, share = value(known, busy), stalled_pct(known, *stalls)
    return (used is None and share is None) or (used or 0) >= BUSY_MEMORY_PCT or (share or 0) >= WAITING_PCT


def executed(opcodes: dict[str, OpcodeFact], pattern: re.Pattern[str]) -> OpcodeFact:
    """What was counted of the opcodes (with their suffixes) that fit a pattern, together."""
    return _sum([count for name, count in opcodes.items() if pattern.fullmatch(name)])


def all_executed(kernel: KernelFacts) -> OpcodeFact:
    """What was counted of all instructions."""
    return _sum(list(kernel.opcodes.values()))


def _sum(counts: list[OpcodeFact]) -> OpcodeFact:
    return OpcodeFact(*(sum(column) for column in zip(*counts, strict=True))) if counts else OpcodeFact()


def worst(lines: list[LineFact], weight: Callable[[LineFact], float]) -> LineFact | None:
    """The line that has most, of equal ones the first of the file; None where none has any."""
    most = max(lines, key=lambda line: (weight(line), -(line.line or 0)), default=None)
    return most if most is not None and weight(most) > 0 else None


def worst_by_opcode(lines: list[LineFact], pattern: re.Pattern[str]) -> LineFact | None:
    """The line that executes most of the opcodes that fit; one of source before an instruction without a line."""
    named = [line for line in lines if line.line is not None and executed(line.opcodes, pattern).executed]
    return worst(named or lines, lambda line: executed(line.opcodes, pattern).executed)


def place(line: LineFact | None, where: Where) -> SourceLine | None:
    """The line to change: of what was inlined from a header, the one that it was inlined into."""
    if line is None:
        return None
    if line.called_from is not None:
        caller = line.called_from
        return source_line(caller.file, caller.line, caller.text, where)
    return source_line(line.file, line.line, line.text, where)


def source_line(file: str | None, line: int | None, text: str, where: Where) -> SourceLine:
    """A line as it is told: the file without its folder, and where the text stands in the candidate."""
    short = file.replace("\\", "/").rpartition("/")[2] if file else None
    return SourceLine(file=short, line=line, candidate_line=where(text), text=text)
