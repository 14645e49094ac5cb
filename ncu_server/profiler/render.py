"""Reports as the tools tell them: the longest launch in full, the rest in a line each, no longer than fits a model."""

from __future__ import annotations

import fnmatch
import json
from typing import TypeVar

from pydantic import BaseModel

from ncu_server.errors import Code, Refusal
from ncu_server.profiler.digest import digest, duration_us
from ncu_server.profiler.facts import KernelFacts
from ncu_server.profiler.reports import Entry
from ncu_server.wire.profiling import KernelDigest, KernelReport, KernelRow, MetricRow, MetricsResult, ProfileResult

TOKENS, LETTERS = 2500, 3.6
"""What a result may cost a model; counters and names come at about so many letters a token."""
MOST_ROWS, PAGE, LONGEST_VALUE = 12, 40, 120

PARTS = {"metrics": ("metrics", "units"), "rules": ("rules",), "source": ("lines",)}

Result = TypeVar("Result", bound=BaseModel)


def report(entry: Entry, kernel: int | None = None) -> KernelReport:
    """A kept report, launch `kernel` (by default the longest) in full. Raises Refusal where there is none."""
    kernels, about = entry.kernels, entry.about
    chosen = longest(kernels) if kernel is None else kernel
    launch = one(kernels, chosen)
    rows = _rows(kernels)
    notes = [*about.notes, "duration_us is ncu's own, at its clocks and with its cache control: never the score"]
    if len(rows) > MOST_ROWS:
        notes.append(f"{len(rows)} launches; the longest {MOST_ROWS} are listed")
    return KernelReport(
        report_id=entry.identity,
        uri=f"ncu://report/{entry.identity}",
        device=about.device,
        arch=about.arch,
        writer=about.writer,
        collected=about.collected,
        kernels=sorted(rows, key=lambda row: -(row.duration_us or 0))[:MOST_ROWS] if len(rows) > 1 else [],
        digest=digest(launch, about.copy_gbps, about.source),
        notes=notes,
    )


def one(kernels: list[KernelFacts], index: int) -> KernelFacts:
    """Raises Refusal BAD_ARGUMENT where there is no such launch."""
    if not 0 <= index < len(kernels):
        raise Refusal(Code.BAD_ARGUMENT, f"no kernel {index}: the report has kernels 0 to {len(kernels) - 1}")
    return kernels[index]


def longest(kernels: list[KernelFacts]) -> int:
    """The place of the launch that took the longest."""
    return max(range(len(kernels)), key=lambda i: duration_us(kernels[i]) or 0.0)


def _rows(kernels: list[KernelFacts]) -> list[KernelRow]:
    times = [duration_us(kernel) for kernel in kernels]
    total = sum(time or 0.0 for time in times)
    return [
        KernelRow(
            index=i,
            name=kernel.name[:80],
            duration_us=None if time is None else round(time, 2),
            share_pct=round(100 * time / total, 1) if time and total else None,
            bound=digest(kernel).bound,
        )
        for i, (kernel, time) in enumerate(zip(kernels, times, strict=True))
    ]


def counters(entry: Entry, kernel: int | None, pattern: str, limit: int, cursor: int) -> MetricsResult:
    """Counters whose name holds `pattern`, or matches it where it is one of a shell's."""
    kernels = entry.kernels
    chosen = longest(kernels) if kernel is None else kernel
    launch = one(kernels, chosen)
    wanted = pattern if any(c in pattern for c in "*?[") else f"*{pattern}*"
    names = sorted(name for name in launch.metrics if fnmatch.fnmatchcase(name.lower(), wanted.lower()))
    page = names[cursor : cursor + min(limit, PAGE)]
    following = cursor + len(page)
    return MetricsResult(
        report_id=entry.identity,
        kernel=chosen,
        name=launch.name[:120],
        total=len(names),
        metrics=[MetricRow(name=n, value=_value(launch.metrics[n]), unit=launch.units.get(n)) for n in page],
        cursor=following if following < len(names) else None,
    )


def part(entry: Entry, name: str) -> str:
    """A part of a report in full, all launches of it. Raises Refusal BAD_ARGUMENT where there is no such part."""
    if name == "log":
        return json.dumps({"log": entry.log})
    if name not in PARTS:
        raise Refusal(Code.BAD_ARGUMENT, f"a report has no part {name!r}", f"there are log, raw, {', '.join(PARTS)}")
    kept = {"name", "demangled", *PARTS[name]}
    return json.dumps([kernel.model_dump(include=kept) for kernel in entry.kernels])


def _value(value: float | str) -> float | str:
    return value if not isinstance(value, str) or len(value) <= LONGEST_VALUE else value[:LONGEST_VALUE] + "..."


def tokens(result: BaseModel) -> int:
    """What a result costs a model, about."""
    return int(len(result.model_dump_json()) / LETTERS)


def brief(result: ProfileResult) -> ProfileResult:
    """The result of profiling, no longer than fits: shorter digests first, then none for the last of many."""
    reports = [p.report for p in result.profiles if p.report is not None]
    fitted(result, [report.digest for report in reports if report.digest])
    for report in reversed(reports[1:]):
        if tokens(result) > TOKENS and report.report_id:
            report.digest = None
            report.notes = [f"too long beside the others: read_report {report.report_id}"]
    return result


def fitted(result: Result, digests: list[KernelDigest]) -> Result:
    """The result, its digests shortened from the end of their lists until it costs no more than TOKENS."""
    shrinking = ("missing", "counters", "rules", "hot_lines", "stalls", "findings")
    for least in (4, 3, 2, 1, 0):
        for name in shrinking:
            for each in digests:
                if tokens(result) <= TOKENS:
                    return result
                setattr(each, name, getattr(each, name)[: max(least, name == "findings")])
    return result
