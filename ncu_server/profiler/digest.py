"""Report -> digest: pure functions over the facts of one launch."""

from __future__ import annotations

import re

from ncu_server.profiler import evidence, findings, metrics
from ncu_server.profiler.facts import KernelFacts, LineFact, RuleFact
from ncu_server.profiler.metrics import number, value
from ncu_server.wire.profiling import (
    Bound,
    Counter,
    HotLine,
    KernelDigest,
    Memory,
    Missing,
    NcuRule,
    Occupancy,
    Roofline,
    SpeedOfLight,
    Stall,
)

STALLS, RULES, LINES, LINE_STALLS, RULE_LENGTH = 5, 5, 8, 3, 200
LEAST_STALL_PCT = 2.0
FEW_SAMPLES, SHORT_US = 200, 20.0
BUSY_PCT, NEAR_PCT, IDLE_PCT, HALF_WAVE = 60.0, 80.0, 25.0, 0.5
TO_US = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3, "s": 1e6, "second": 1e6}
URL = re.compile(r"@url:([^@]*?):(?:https?://)[^@]*@")
MARKED = re.compile(r"@(?:section|sass|source):(?:[^@]*:)?([^:@]*)@")


def digest(kernel: KernelFacts, copy_gbps: float | None = None, source: str | None = None) -> KernelDigest:
    """What a launch's counters say. `copy_gbps` is the device's measured copy bandwidth, `source` the candidate's text,
    in which lines are looked up."""
    known = kernel.metrics
    light, memory = _speed_of_light(known), _memory(known)
    where = _Lookup(source)
    wrong = findings.found_in(kernel, where)
    bound, why = _bound(kernel, light, {f.trouble for f in wrong})
    doubts = _doubts(kernel)
    return KernelDigest(
        name=kernel.name,
        duration_us=_rounded(duration_us(kernel)),
        clock_ghz=_rounded(_scaled(value(known, "clock"), 1e-9)),
        bound=bound,
        why=why,
        findings=wrong,
        speed_of_light=light,
        roofline=_roofline(known, copy_gbps),
        occupancy=_occupancy(known),
        stalls=_stalls(known),
        memory=memory,
        tensor_pct=_rounded(value(known, "tensor_pct")),
        fma_pct=_rounded(value(known, "fma_pct")),
        issue_pct=_rounded(value(known, "issue_pct")),
        rules=_rules(kernel.rules),
        hot_lines=_hot_lines(kernel.lines, where),
        confidence="low" if doubts else "high",
        doubts=doubts,
        missing=_missing(known),
        counters=_counters(known),
    )


def duration_us(kernel: KernelFacts) -> float | None:
    """Microseconds of the launch at ncu's clocks."""
    for name in metrics.ROWS["duration"].counters:
        if (value := number(kernel.metrics, name)) is not None:
            return value * TO_US.get(kernel.units.get(name, "ns"), 1e-3)
    return None


class _Lookup:
    """Where a line's text stands in the candidate; None where it stands nowhere, or in several places."""

    def __init__(self, source: str | None) -> None:
        self._places: dict[str, list[int]] = {}
        for place, text in enumerate((source or "").splitlines(), 1):
            self._places.setdefault(text.strip(), []).append(place)

    def __call__(self, text: str) -> int | None:
        places = self._places.get(text.strip(), []) if text.strip() else []
        return places[0] if len(places) == 1 else None


def _speed_of_light(known: metrics.Metrics) -> SpeedOfLight:
    compute, memory = (metrics.ROWS[row].counters[0] for row in ("compute_pct", "memory_pct"))
    rows = ("compute_pct", "memory_pct", "dram_pct", "l2_pct", "l1_pct")
    return SpeedOfLight(
        **{row: _rounded(value(known, row)) for row in rows},
        compute_unit=metrics.busiest(known, compute),
        memory_unit=metrics.busiest(known, memory),
    )


def _bound(kernel: KernelFacts, light: SpeedOfLight, wrong: set[str]) -> tuple[Bound, str]:
    """What keeps the launch from being faster, and the numbers that say so."""
    known = kernel.metrics
    compute, memory = light.compute_pct, light.memory_pct
    if compute is None or memory is None:
        return "unknown", "the report lacks the section SpeedOfLight"
    blocks, sms, waves = (value(known, row) for row in ("blocks", "sms", "waves"))
    of_peak = f"compute {compute:.0f} %, memory {memory:.0f} % of peak"
    most = max(compute, memory)
    if blocks is not None and sms and blocks < findings.FILLED_SMS * sms and most < BUSY_PCT:
        return "launch", f"{blocks:.0f} blocks for {sms:.0f} SMs; {of_peak}"
    if most < IDLE_PCT and waves is not None and waves < HALF_WAVE:
        return "launch", f"the grid fills {waves:.2f} of one wave; {of_peak}"
    wasted = wrong & {"uncoalesced", "spills", "bank_conflicts"}
    if (light.dram_pct or 0) >= NEAR_PCT and not wasted:
        return "near the limit", f"DRAM is busy {light.dram_pct:.0f} % of the time and no traffic is wasted"
    if compute >= NEAR_PCT and _is_needed(light.compute_unit, kernel, wrong):
        return "near the limit", f"compute {compute:.0f} % of peak; busiest: {light.compute_unit}"
    if most < BUSY_PCT:
        return "latency", f"no unit is busy: {of_peak}"
    unit = light.compute_unit if compute > memory else light.memory_unit
    return ("compute" if compute > memory else "memory"), of_peak + (f"; busiest: {unit}" if unit else "")


def _is_needed(unit: str | None, kernel: KernelFacts, wrong: set[str]) -> bool:
    """Whether what keeps an arithmetic unit busy is the problem's own work, as far as the opcodes tell."""
    if unit not in metrics.ARITHMETIC or "tensor_idle" in wrong:
        return False
    if unit in ("FP64 pipe", "tensor and FP64 pipes"):
        return "double_arithmetic" not in wrong
    own, beside = metrics.OWN_WORK.get(unit, (None, None))
    if own is None or beside is None:
        return True
    return evidence.executed(kernel.opcodes, own).executed >= evidence.executed(kernel.opcodes, beside).executed


def _roofline(known: metrics.Metrics, copy_gbps: float | None) -> Roofline:
    rate = evidence.flops(known)
    moved = value(known, "dram_bytes_per_second")
    gbps = moved / 1e9 if moved is not None else None
    peak_flops = _product(known, metrics.FLOP_PEAK, metrics.FLOP_PEAK_CLOCK)
    peak_bytes = _product(known, metrics.BYTE_PEAK, metrics.BYTE_PEAK_CLOCK)
    return Roofline(
        gflops=_rounded(_scaled(rate, 1e-9)),
        flops_per_byte=_rounded(evidence.flops_per_byte(known)),
        dram_gbps=_rounded(gbps),
        peak_gflops=_rounded(_scaled(peak_flops, 2e-9)),
        peak_dram_gbps=_rounded(_scaled(peak_bytes, 1e-9)),
        measured_copy_gbps=_rounded(copy_gbps),
        measured_copy_pct=_rounded(100 * gbps / copy_gbps if gbps is not None and copy_gbps else None),
    )


def _product(known: metrics.Metrics, per_cycle: str, clock: str) -> float | None:
    a, b = number(known, per_cycle), number(known, clock)
    return a * b if a is not None and b is not None else None


def _occupancy(known: metrics.Metrics) -> Occupancy:
    shared = [value(known, row) for row in ("static_shared", "dynamic_shared")]
    return Occupancy(
        achieved_pct=_rounded(value(known, "occupancy_pct")),
        possible_pct=_rounded(value(known, "possible_occupancy_pct")),
        limiter=evidence.limiter(known),
        registers_per_thread=value(known, "registers"),
        shared_bytes_per_block=None if None in shared else sum(s or 0 for s in shared),
        threads_per_block=value(known, "threads"),
        blocks=value(known, "blocks"),
        waves=_rounded(value(known, "waves")),
        sms=value(known, "sms"),
    )


def _stalls(known: metrics.Metrics) -> list[Stall]:
    waits = {
        name.removeprefix(metrics.STALL).removesuffix(metrics.PER_ISSUE): value
        for name in known
        if name.startswith(metrics.STALL) and name.endswith(metrics.PER_ISSUE)
        if (value := number(known, name)) is not None
    }
    total = sum(waits.values())
    shares = {reason: 100 * w / total for reason, w in waits.items() if total and reason not in metrics.BUSY}
    top = sorted(shares, key=lambda reason: -shares[reason])[:STALLS]
    return [
        Stall(reason=r, share_pct=round(shares[r], 1), waits_for=metrics.WAITING_FOR.get(r, r))
        for r in top
        if shares[r] >= LEAST_STALL_PCT
    ]


def _memory(known: metrics.Metrics) -> Memory:
    use = evidence.use_of_memory(known)
    loads, stores = (
        evidence.ratio(value(known, f"{kind}_sectors"), value(known, f"{kind}_requests")) for kind in ("load", "store")
    )
    return Memory(
        load_sectors_per_request=_rounded(loads),
        store_sectors_per_request=_rounded(stores),
        global_excess_pct=_rounded(use.global_excess_pct),
        shared_excess_pct=_rounded(use.shared_excess_pct),
        bank_conflict_ways=_rounded(use.ways),
        l1_hit_pct=_rounded(value(known, "l1_hit_pct")),
        l2_hit_pct=_rounded(value(known, "l2_hit_pct")),
        dram_read_bytes=value(known, "dram_read"),
        dram_written_bytes=value(known, "dram_written"),
        local_instructions=use.local_instructions,
    )


def _rules(rules: list[RuleFact]) -> list[NcuRule]:
    """The rules that advise, those that promise a share of the whole time first; praise is left out."""
    advice = [rule for rule in rules if rule.kind >= 2 and rule.text]

    def promise(rule: RuleFact) -> tuple[bool, float]:
        return rule.scope != "global", -(rule.speedup_pct or 0.0)

    return [
        NcuRule(
            title=rule.title or rule.rule or "",
            section=rule.section,
            speedup_pct=_rounded(rule.speedup_pct),
            scope=rule.scope,
            text=plain(rule.text),
        )
        for rule in sorted(advice, key=promise)[:RULES]
    ]


def plain(text: str) -> str:
    """A rule's message without its markup, the first sentences of it; of links the text stays."""
    whole = " ".join(MARKED.sub(r"\1", URL.sub(r"\1", text)).split())
    kept = ""
    for sentence in re.split(r"(?<=\.) (?=[A-Z])", whole):
        if kept and len(kept) + len(sentence) > RULE_LENGTH:
            break
        kept = f"{kept} {sentence}".strip()
    return kept if len(kept) <= 2 * RULE_LENGTH else kept[: 2 * RULE_LENGTH] + "..."


def _hot_lines(lines: list[LineFact], where: _Lookup) -> list[HotLine]:
    total = sum(line.samples for line in lines)
    hot = sorted((line for line in lines if line.samples), key=lambda line: -line.samples)[:LINES]
    return [
        HotLine(
            **evidence.source_line(line.file, line.line, line.text, where).model_dump(),
            samples=line.samples,
            share_pct=round(100 * line.samples / total, 1),
            stalls=_line_stalls(line),
            called_from=evidence.place(line, where) if line.called_from else None,
        )
        for line in hot
    ]


def _line_stalls(line: LineFact) -> dict[str, float]:
    waits = {reason: count for reason, count in line.stalls.items() if reason not in metrics.BUSY and count}
    top = sorted(waits, key=lambda reason: -waits[reason])[:LINE_STALLS]
    return {reason: round(100 * waits[reason] / line.samples, 1) for reason in top}


def _doubts(kernel: KernelFacts) -> list[str]:
    """Why little may be built on the digest."""
    taken, lasted = value(kernel.metrics, "samples"), duration_us(kernel)
    doubts = []
    if taken is not None and taken < FEW_SAMPLES:
        doubts.append(f"only {taken:.0f} samples: the hot lines are a hint")
    if lasted is not None and lasted < SHORT_US:
        doubts.append(f"the launch took {lasted:.1f} us: shares of peak include its start and end")
    return doubts


def _missing(known: metrics.Metrics) -> list[Missing]:
    lost = [row for name, row in metrics.ROWS.items() if row.asked and value(known, name) is None]
    return [
        Missing(metric=row.counters[0], reason=f"not in the report; section {row.section} collects it") for row in lost
    ]


def _counters(known: metrics.Metrics) -> list[Counter]:
    shown = ((row, _rounded(value(known, name))) for name, row in metrics.ROWS.items() if row.shown)
    return [Counter(what=row.what, value=found, unit=row.unit) for row, found in shown if found is not None]


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _rounded(value: float | None) -> float | None:
    """Four significant digits, which is more than counters are worth."""
    return None if value is None else float(f"{value:.4g}")
