"""What the executed instructions show to be wrong: atomics, doubles, narrow accesses, divisions, cache misses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from ncu_server.profiler.evidence import (
    TRAFFIC,
    WAITING_PCT,
    Where,
    all_executed,
    executed,
    matters,
    place,
    ratio,
    stalled_pct,
    worst,
    worst_by_opcode,
)
from ncu_server.profiler.facts import KernelFacts, LineFact
from ncu_server.profiler.metrics import value
from ncu_server.wire.profiling import Finding

GLOBAL_ATOMIC = re.compile(r"(ATOM|ATOMG|RED|REDG)(\..*)?")
SHARED_ATOMIC = re.compile(r"ATOMS(\..*)?")
SWAP_LOOP = re.compile(r"ATOMS\.CAST?(\..*)?|ATOMS\.CAS\b.*")
DOUBLE = re.compile(r"D(ADD|MUL|FMA|SETP|MNMX)(\..*)?")
DOUBLE_CONVERSION = re.compile(r"F2F\..*F64.*|I2F\.(.*\.)?F64.*|F2I\.(.*\.)?F64.*")
DIVISION, WIDE_DIVISION = re.compile(r"I2F\.([US]32\.)?RP"), re.compile(r"I2F\.[US]64\.RP")
ANY_DIVISION = re.compile(r"I2F\.([US](32|64)\.)?RP")
GLOBAL_LOAD = re.compile(r"(LDG|LD)(\..*)?")
GLOBAL_ACCESS = re.compile(r"(LDG|LD|STG|ST)(\..*)?")
NARROW_ACCESS = re.compile(r"(LDG|LD|STG|ST)\.(.*\.)?[US](8|16)(\..*)?")

# A sector of 32 bytes holds eight words: more threads than that in one meet at an address.
WORDS_A_SECTOR = 8.0
# Slices of L2 share addresses evenly: the busiest works at most 1.07 times as much as the mean in recorded reports of
# filled grids, 2.8 times where four blocks read four rows.
HOT_SLICE, BUSY_SLICE_PCT = 3.0, 25.0
ATOMIC_PCT, WAITING_FOR_ATOMICS_PCT, TURNS = 10.0, 50.0, 2.0
# A conversion to or from double takes as long as eight additions of floats (16 against 128 a cycle and SM: CUDA C++
# Programming Guide, throughput of native arithmetic instructions): one in twenty instructions is 40 % of the time.
DOUBLE_PCT = 5.0
NARROW_PCT, NEAR_PCT, REQUEST_BYTES = 50.0, 80.0, 512
# What nvcc 13 makes of a division or remainder by a variable, counted in its SASS for sm_90.
DIVISION_LENGTH, WIDE_DIVISION_LENGTH, DIVISION_PCT = 20, 70, 20.0
MISSED_PCT = 15.0  # recorded launches without the disease wait at most 1.2 % for instructions


def _global_atomics(kernel: KernelFacts, where: Where) -> Iterator[Finding]:
    """Atomics on few addresses take turns in one slice of L2 while no unit is busy on average."""
    known = kernel.metrics
    atomics, others = executed(kernel.opcodes, GLOBAL_ATOMIC), executed(kernel.opcodes, GLOBAL_ACCESS)
    share = ratio(atomics.executed, atomics.executed + others.executed)
    waiting = stalled_pct(known, *TRAFFIC, "drain", "membar")
    if share is None or 100 * share < ATOMIC_PCT or (waiting or 0) < WAITING_FOR_ATOMICS_PCT:
        return
    sectors = [value(known, row) for row in ("red_sectors", "atom_sectors")]
    meeting = ratio(atomics.threads, sum(count or 0 for count in sectors))
    most, mean = value(known, "l2_most_pct") or 0.0, value(known, "l2_pct")
    hot = most >= BUSY_SLICE_PCT and (ratio(most, mean) or 0) >= HOT_SLICE
    if (meeting or 0) <= WORDS_A_SECTOR and not hot:
        return
    words = f"{atomics.threads:.3g} atomic operations on global memory contend for few addresses"
    words += f": {meeting:.0f} threads meet in a sector of 32 bytes" if meeting and meeting > WORDS_A_SECTOR else ""
    words += f"; one slice of L2 is busy {most:.0f} %, the mean {mean:.0f} %" if hot else ""
    words += "; add up in registers and shared memory first"
    yield Finding(
        trouble="global_atomics", words=words, place=place(worst_by_opcode(kernel.lines, GLOBAL_ATOMIC), where)
    )


def _shared_atomics(kernel: KernelFacts, where: Where) -> Iterator[Finding]:
    """Waiting for operands from global memory is not the atomics' fault, though it is sampled at their line."""
    atomics, all_of = executed(kernel.opcodes, SHARED_ATOMIC), all_executed(kernel)
    blamed = worst_by_opcode(kernel.lines, SHARED_ATOMIC)
    if blamed is None or not atomics.executed:
        return
    lines = [line for line in kernel.lines if executed(line.opcodes, SHARED_ATOMIC).executed]
    spent = sum(line.samples - line.stalls.get("long_scoreboard", 0) for line in lines)
    share = ratio(spent, all_of.samples)
    turns = ratio(value(kernel.metrics, "shared_atomic_wavefronts"), atomics.executed)
    loops = executed(kernel.opcodes, SWAP_LOOP).executed > 0
    if share is None or 100 * share < WAITING_PCT or not (loops or (turns or 0) >= TURNS):
        return
    words = f"atomic operations on shared memory take {100 * share:.0f} % of the samples"
    words += "; each is a loop that reads and swaps until no other thread was quicker" if loops else ""
    words += f"; each takes {turns:.1f} turns" if turns and turns >= TURNS else ""
    words += ": add up in registers or across the warp first"
    yield Finding(trouble="shared_atomics", words=words, place=place(blamed, where))


def _double_arithmetic(kernel: KernelFacts, where: Where) -> Iterator[Finding]:
    """Whoever means doubles stores them and converts nothing."""
    doubles, all_of = executed(kernel.opcodes, DOUBLE), all_executed(kernel)
    conversions = executed(kernel.opcodes, DOUBLE_CONVERSION)
    share = ratio(doubles.executed + conversions.executed, all_of.executed)
    if not doubles.executed or not conversions.executed or share is None or 100 * share < DOUBLE_PCT:
        return
    words = f"{100 * share:.0f} % of the instructions compute in double or convert to and from it"
    words += ": a literal without f, or a function of doubles, in the arithmetic of floats"
    pattern = re.compile(f"{DOUBLE.pattern}|{DOUBLE_CONVERSION.pattern}")
    yield Finding(trouble="double_arithmetic", words=words, place=place(worst_by_opcode(kernel.lines, pattern), where))


def _narrow_access(kernel: KernelFacts, where: Where) -> Iterator[Finding]:
    known = kernel.metrics
    narrow, accesses = executed(kernel.opcodes, NARROW_ACCESS), executed(kernel.opcodes, GLOBAL_ACCESS)
    share = ratio(narrow.executed, accesses.executed)
    if share is None or 100 * share < NARROW_PCT or (value(known, "dram_pct") or 0) >= NEAR_PCT:
        return
    if matters(known, "memory_pct", *TRAFFIC):
        words = f"{100 * share:.0f} % of the global loads and stores move one or two bytes a thread"
        words += f", where a warp's request can move {REQUEST_BYTES} bytes: load 16 bytes a thread"
        blamed = worst_by_opcode(kernel.lines, NARROW_ACCESS)
        yield Finding(trouble="narrow_access", words=words, place=place(blamed, where))


def _integer_division(kernel: KernelFacts, where: Where) -> Iterator[Finding]:
    """A division by a variable begins with a reciprocal rounded up, which nothing else is compiled to."""
    short, wide = executed(kernel.opcodes, DIVISION), executed(kernel.opcodes, WIDE_DIVISION)
    spent = DIVISION_LENGTH * short.executed + WIDE_DIVISION_LENGTH * wide.executed
    share = ratio(spent, all_executed(kernel).executed)
    if share is None or 100 * share < DIVISION_PCT or (value(kernel.metrics, "dram_pct") or 0) >= NEAR_PCT:
        return
    words = f"integer divisions and remainders take about {min(100 * share, 100):.0f} % of the instructions"
    words += ": divide by constants or powers of two, keep indices in 32 bits, or count on instead"
    blamed = worst_by_opcode([line for line in kernel.lines if _divides(line)], ANY_DIVISION)
    yield Finding(trouble="integer_division", words=words, place=place(blamed, where))


def _divides(line: LineFact) -> bool:
    """Whether a division can be read at a line, or its text is not known: nvcc 13 puts the code of a division in 64
    bits at an earlier line, which is then not to blame."""
    code = line.text if (line.file or "").endswith(".py") else line.text.partition("//")[0]
    return not line.text or line.called_from is not None or "/" in code or "%" in code


def _instruction_cache(kernel: KernelFacts, where: Where) -> Iterator[Finding]:
    missed = stalled_pct(kernel.metrics, "no_instruction", "no_instructions")
    if missed is not None and missed >= MISSED_PCT:
        words = f"warps wait {missed:.0f} % of their time for instructions: the loop's code exceeds the caches"
        words += "; unroll less, or let all warps run the same part"
        blamed = worst(kernel.lines, lambda r: r.stalls.get("no_instructions", 0) + r.stalls.get("no_instruction", 0))
        yield Finding(trouble="instruction_cache", words=words, place=place(blamed, where))


ROWS: tuple[Callable[[KernelFacts, Where], Iterator[Finding]], ...] = (
    _global_atomics,
    _shared_atomics,
    _double_arithmetic,
    _narrow_access,
    _integer_division,
    _instruction_cache,
)
