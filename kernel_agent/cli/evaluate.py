"""One kernel before the judge, without a search: ask for the verdict, and say it to a person."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from kernel_agent.bench.answers import EvaluateAnswer
from kernel_agent.interfaces import OnProgress, Stage
from kernel_agent.page.words import ms, times
from kernel_agent.run.types import Problem, Status, Timing, Versus, baseline_title
from kernel_agent.settings import Settings
from kernel_agent.text import clean

LOG_LINES = 20
LABEL = 12
STAGES = {"prepare_s": "prepare", "build_s": "build", "check_s": "check", "time_s": "time"}


async def judge(
    settings: Settings,
    problem: Problem,
    candidate: str,
    baselines: Iterable[str],
    rules: str,
    on_progress: OnProgress,
) -> tuple[Problem, dict[str, Any]]:
    """The server's answer on `candidate`, as it came, and the problem with the target it was judged on.

    Raises the exceptions of kernel_agent.errors for whatever is not the candidate's fault.
    """
    from kernel_agent.agent import found_target
    from kernel_agent.bench.client import BenchClient
    from kernel_agent.bench.pool import endpoints

    server = endpoints(settings)[0]
    with tempfile.TemporaryDirectory() as folder:
        async with BenchClient(
            server.path,
            Path(folder),
            settings.evaluation_timeout_s,
            lambda notice: on_progress(Stage(notice)),
            server.token,
        ) as bench:
            if not problem.target:
                problem = Problem(problem.name, problem.source, await found_target(bench))
            return problem, await bench.verdict(problem, candidate, baselines, rules, on_progress)


def lines(found: EvaluateAnswer, problem: Problem) -> Iterator[str]:
    """The verdict for a person: what it is, why, how fast beside each baseline, and what stands behind it."""
    yield _row(found.status.replace("_", " "), f"{problem.name} on {problem.target}{_device(found)}")
    for row in _log(found.log):
        yield _row("", row)
    for versus in found.versus:
        yield _row("speed-up", _against(versus))
    if found.timing:
        yield _row("time", _time(found.timing, found.limit_us))
    for shape in found.shapes:
        ratios = ", ".join(f"{times(v.speedup)} against {baseline_title(v.baseline)}" for v in shape.versus)
        yield _row("shape", f"{shape.inputs}: {ms(shape.timing.median_us)}, {ratios}")
    if found.error is not None:
        yield _row("error", f"{found.error:.3g} rounding units, of which {found.allowed or 64:.4g} are allowed")
    if found.precision:
        yield _row("precision", found.precision)
    if who := _who(found):
        yield _row("authorship", who)
    if walls := found.provenance.get("walls"):
        yield _row("walls", str(walls))
    for note in found.notes:
        yield _row("note", note)
    for warning in found.warnings:
        yield _row("warning", warning)
    if took := [f"{name} {found.stages[key]:.1f} s" for key, name in STAGES.items() if found.stages.get(key)]:
        yield _row("took", ", ".join(took))
    if found.status is Status.PASSED:
        yield _row("measured", _how(found))


def _row(label: str, text: str) -> str:
    return f"{label:{LABEL}} {text}".rstrip()


def _device(found: EvaluateAnswer) -> str:
    device, threads = found.provenance.get("device"), found.provenance.get("threads")
    if device is None:
        return ""
    return f" ({device}{f', threads: {threads:g}' if threads else ''})"


def _log(log: str) -> list[str]:
    """The log's lines; of a long one the beginning, where a compiler speaks, and the end, where a traceback does."""
    rows = clean(log).strip().splitlines()
    if len(rows) <= LOG_LINES:
        return rows
    half = LOG_LINES // 2
    return [*rows[:half], f"... {len(rows) - LOG_LINES} lines left out; --json has them all ...", *rows[-half:]]


def _against(versus: Versus) -> str:
    name, us = baseline_title(versus.baseline), versus.timing.median_us
    return f"{times(versus.speedup)} against {name} ({ms(us)}): {versus.verdict}"


def _time(timing: Timing, limit_us: float | None) -> str:
    low, high = (ms(us).removesuffix(" ms") for us in (timing.low_us, timing.high_us))
    cache = f" with inputs {timing.cache}" if timing.cache else ""
    warm = f", {ms(timing.warm_us)} warm" if timing.warm_us else ""
    limit = f", limit {ms(limit_us)} ({_reached(timing.median_us, limit_us)})" if limit_us else ""
    return f"{ms(timing.median_us)} [{low}, {high}]{cache}{warm}, {timing.samples} blocks{limit}"


def _reached(time_us: float, limit_us: float) -> str:
    return "passed" if time_us < limit_us else f"{limit_us / time_us:.0%} reached"


def _who(found: EvaluateAnswer) -> str | None:
    facts = found.provenance
    if "label" not in facts:
        return None
    shares = [
        f"{facts[key]:.0%} in {what}"
        for key, what in (("own_share", "kernels of its own"), ("library_share", "library code"))
        if isinstance(facts.get(key), float)
    ]
    top = [f"the most in {facts['library_top']}"] if "library_top" in facts else []
    return f"{facts['label']}{': ' if shares else ''}{', '.join(shares + top)}"


def _how(found: EvaluateAnswer) -> str:
    facts = found.provenance
    versions = [f"{name} {facts[name]}" for name in ("torch", "python") if name in facts]
    return "; ".join([str(facts[key]) for key in ("protocol",) if key in facts] + [", ".join(versions)]).strip("; ")
