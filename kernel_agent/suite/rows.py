"""What a suite's directory holds becomes the rows of its table."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernel_agent.delivery import BEST
from kernel_agent.errors import KernelAgentError
from kernel_agent.run.budget import JUDGING
from kernel_agent.run.history import read_whole
from kernel_agent.run.regions import Regions
from kernel_agent.run.results import reached, results
from kernel_agent.run.rows import reader
from kernel_agent.run.spending import spent_so_far
from kernel_agent.run.types import Evaluation, Interval, Status, digest
from kernel_agent.suite.store import Suite
from kernel_agent.suite.types import Confirmed, Outcome, Row, State, SuiteProblem, Verdict
from kernel_agent.text import line

RESULTS = "results.json"
NEEDED = {"evaluations", "spent", "reached_interval", "authorship", "limit_us"}
"""What a row takes of it beside what every version has written."""

ORIGINAL = "original_delivered"
"""The status of a problem for which the templates have no kernel, where there is no model."""

NOT_COVERED = "NotCovered"
"""The fault of such a problem in suites of before."""

Found = dict[str, Any]
"""What a run found; see kernel_agent.run.results."""


def rows_of(suite: Suite) -> tuple[Row, ...]:
    """A row for each problem, in the suite's order; what cannot be read of one is its reason."""
    return tuple(_row_of(suite, problem) for problem in suite.problems)


def _row_of(suite: Suite, problem: SuiteProblem) -> Row:
    directory, outcome = problem.directory(suite.directory), suite.outcome(problem)
    row = _bare(problem, outcome)
    if verdict := suite.verdicts.get(problem.id):
        row = judged_row(row, verdict) if outcome.state is State.DONE else row
    elif outcome.state is not State.WAITING:
        row = _run_row(row, directory, outcome)
    return confirmed_row(row, directory / BEST, suite.confirmed.get(problem.id))


def _bare(problem: SuiteProblem, outcome: Outcome) -> Row:
    failed = "not_covered" if outcome.fault == NOT_COVERED else "failed"
    status = failed if outcome.state in (State.FAILED, State.DONE) else str(outcome.state)
    return Row(
        problem.id,
        status,
        outcome.reason,
        dollars=0.0,
        minutes=outcome.under_way_minutes,
        granted_minutes=outcome.minutes,
        notes=problem.notes,
    )


def _run_row(row: Row, directory: Path, outcome: Outcome) -> Row:
    """With what the run in a directory found: as it stood when it delivered, or as its journal has it now."""
    found = None if outcome.state is State.RUNNING else _delivered(directory / RESULTS)
    try:
        if found is None:
            run, told = read_whole(directory)
            found = results(run, directory) | {"spent": spent_so_far(told)}
    except KernelAgentError as fault:
        return replace(row, reason=row.reason or (str(fault) if outcome.state is State.DONE else None))
    if (directory / BEST).is_file():
        return found_row(row, found, ended=outcome.state is not State.RUNNING)
    gone = f"{directory / BEST} is missing" if outcome.state is State.DONE else None
    return replace(_known(row, found), reason=row.reason or gone)


def _delivered(file: Path) -> Found | None:
    """What a run has written when it ended; None where it has not, or an earlier version has written less."""
    try:
        found = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and found.keys() >= NEEDED else None


def found_row(row: Row, found: Found, ended: bool) -> Row:
    """With what a run delivered. Its speed-ups are those of the second judgement; those of an original are 1 over
    eager PyTorch, and the ratio of their times over torch.compile."""
    improved = found["status"] == "improved"
    original = _no_kernel(found)
    return replace(
        _known(row, found),
        status=(ORIGINAL if original else found["status"]) if ended else row.status,
        reason=row.reason or original,
        authorship=found["authorship"],
        kernel_us=found["time_us"] if improved else None,
        speedup=_interval(found, "speedup"),
        versus_compile=_interval(found, "speedup_vs_compile"),
        reached=_interval(found, "reached") if improved else None,
        correct=improved,
    )


def _no_kernel(found: Found) -> str | None:
    """Why the original was delivered without a search; None where kernels were judged."""
    regions = found.get("regions")
    if regions is None or regions["kernels"] or found["evaluations"]:
        return None
    return reader(Regions).validate_python(regions).account


def _known(row: Row, found: Found) -> Row:
    """With what a run knows of its problem, and what it has cost."""
    spent = found["spent"]
    return replace(
        row,
        eager_us=found["reference_us"],
        compile_us=found["compile_us"],
        compile_mode=found["compile_mode"],
        limit_us=found["limit_us"],
        evaluations=found["evaluations"],
        tokens=spent["prompt_tokens"] + spent["reply_tokens"],
        dollars=spent["dollars"],
        minutes=spent["seconds"] / 60,
        device=found["device"],
        target=found["target"],
    )


def _interval(found: Found, name: str) -> Interval | None:
    ends, middle = found[f"{name}_interval"], found[name]
    return Interval(ends[0], middle, ends[1]) if ends and middle is not None else None


def judged_row(row: Row, verdict: Verdict) -> Row:
    """With the judge's word on a kernel made elsewhere; one that is right is that also where it is not faster."""
    found, known = verdict.evaluation, verdict.description
    timing, compiled = found.timing, found.compiled
    eager = next((v.timing for v in found.versus if v.baseline == "eager"), known.baselines["eager"])
    mode = compiled.baseline if compiled else next((name for name in known.rivals if name != "eager"), None)
    return replace(
        row,
        status="failed" if timing is None else "improved" if found.comparison == "faster" else "no_improvement",
        reason=why_not_passed(found) or None,
        authorship=found.provenance.get("label") if timing else None,
        kernel_us=timing.median_us if timing else None,
        eager_us=eager.median_us,
        compile_us=compiled.timing.median_us if compiled else known.baselines[mode].median_us if mode else None,
        compile_mode=mode,
        limit_us=known.admissible_us,
        speedup=found.against("eager"),
        versus_compile=compiled.speedup if compiled else None,
        reached=reached(known, timing) if timing else None,
        evaluations=1,
        minutes=sum(found.stages.get(name, 0.0) for name in JUDGING) / 60,
        device=known.device.name,
        target=verdict.target,
        correct=timing is not None,
    )


def why_not_passed(found: Evaluation) -> str:
    """Why the judge turned a kernel away, in one line; empty where it passed."""
    if found.status is Status.PASSED:
        return ""
    rows = [*map(str, found.diagnostics), *found.log.strip().splitlines()]
    status = found.status.replace("_", " ")
    return f"{status}: {line(rows[0])}" if rows else status


def confirmed_row(row: Row, file: Path, confirmed: Confirmed | None) -> Row:
    """With the word on the delivered file once more, where it is the same file still."""
    if confirmed is None or confirmed.source_id != file_id(file):
        return row
    return replace(row, held=not confirmed.why_not, why_not_held=confirmed.why_not or None)


def file_id(file: Path) -> str:
    """The digest of a file's text; empty where there is none."""
    try:
        return digest(file.read_text("utf-8", "replace"))
    except OSError:
        return ""
