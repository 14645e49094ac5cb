"""What is known of suites, as one JSON value: what their page draws. Names have units as in a run's facts."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kernel_agent.delivery.files import ours
from kernel_agent.page.facts import FORM
from kernel_agent.page.seen import state
from kernel_agent.run.types import Interval
from kernel_agent.suite.compare import account, compare
from kernel_agent.suite.eta import remaining_s
from kernel_agent.suite.rows import rows_of
from kernel_agent.suite.store import Suite, read
from kernel_agent.suite.sums import level
from kernel_agent.suite.table import NOTES, Grid, Table, counts, speeds, table
from kernel_agent.suite.types import PROBLEMS, Row, State
from kernel_agent.text import line

ENDED = (State.DONE, State.FAILED)


def facts(directory: Path) -> dict[str, Any]:
    """All that a suite's page draws. Raises what reading the suite does."""
    suite = read(directory)
    return of_rows(suite, rows_of(suite))


def of_rows(suite: Suite, rows: Sequence[Row], ended: bool = False) -> dict[str, Any]:
    """The facts of a suite whose rows are known; `ended` says that whoever holds it plays it no more."""
    found, going = table(line(str(suite.directory)), rows), state_of(suite, ended)
    return {
        "form": FORM,
        "made_by": " ".join(filter(None, ("KernelAgent", ours()))),
        "directory": line(str(suite.directory)),
        "name": line(suite.directory.resolve().name),
        "source": line(suite.plan.source),
        "provider": line(str(suite.plan.settings.get("provider") or "auto")),
        "state": going,
        "targets": sorted({row.target for row in rows if row.target}),
        "devices": sorted({line(row.device) for row in rows if row.device}),
        "rows": [row_facts(row) for row in rows],
        "progress": progress(suite, rows, going),
        "spent": spent(suite, found),
        "sums": _sums(found),
        "grids": [_grid(counts(found)), _grid(speeds(found))],
        "notes": list(NOTES),
        "commands": list(commands(suite, going)),
    }


def state_of(suite: Suite, ended: bool) -> str:
    """Whether a suite is being played, has come to its end, or was stopped before."""
    if not ended and state(suite.directory) == "running":
        return "running"
    return "finished" if all(suite.outcome(problem).state in ENDED for problem in suite.problems) else "stopped"


def row_facts(row: Row) -> dict[str, Any]:
    """A problem's line. `directory` is where its run is kept below the suite; an original's ratios have no interval."""
    found = asdict(row) | {
        "problem": line(row.problem),
        "level": line(level(row.problem)),
        "reason": line(row.reason, 400) if row.reason else None,
        "why_not_held": line(row.why_not_held, 400) if row.why_not_held else None,
        "authorship": line(row.authorship) if row.authorship else None,
        "device": line(row.device) if row.device else None,
        "notes": [line(note, 400) for note in row.notes],
        "usd": row.dollars,
        "directory": f"{PROBLEMS}/{row.problem}",
    }
    for name in ("speedup", "versus_compile", "reached"):
        interval: Interval | None = getattr(row, name)
        found[name] = interval.median if interval else None
        found[f"{name}_interval"] = (
            [interval.low, interval.high] if interval and interval.low != interval.high else None
        )
    del found["dollars"]
    return found


def progress(suite: Suite, rows: Sequence[Row], going: str) -> dict[str, Any]:
    """How far a suite is. `left_s` is when all will be played, as far as the finished problems say."""
    states = [suite.outcome(problem).state for problem in suite.problems]
    ended, under_way = sum(one in ENDED for one in states), states.count(State.RUNNING)
    return {
        "problems": len(states),
        "ended": ended,
        "failed": states.count(State.FAILED),
        "under_way": under_way if going == "running" else 0,
        "waiting": states.count(State.WAITING),
        "share": ended / len(states) if states else 1.0,
        "left_s": _left_s(suite, rows, states) if going == "running" else None,
    }


def _left_s(suite: Suite, rows: Sequence[Row], states: Sequence[State]) -> float | None:
    took = {
        state: [row.minutes * 60 for row, its in zip(rows, states, strict=True) if its is state]
        for state in (State.DONE, State.RUNNING)
    }
    limits, most = suite.plan.limits, suite.plan.settings.get("budget_minutes")
    return remaining_s(
        took[State.DONE],
        took[State.RUNNING],
        states.count(State.WAITING),
        suite.plan.at_once or max(1, states.count(State.RUNNING)),
        float(most) * 60 if most else None,
        max(0.0, limits.minutes * 60 - suite.seconds) if limits.minutes is not None else None,
    )


def spent(suite: Suite, found: Table) -> dict[str, Any]:
    """What a suite has cost beside its limits, as a run's facts have it; the seconds are those of its sessions."""
    limits = suite.plan.limits
    return {
        "usd": found.total.dollars,
        "tokens": found.total.tokens,
        "charged_s": suite.seconds,
        "limits": {"usd": limits.dollars, "tokens": limits.tokens, "minutes": limits.minutes},
    }


def commands(suite: Suite, going: str) -> Iterator[dict[str, str]]:
    """What goes on with a suite and tells of it elsewhere."""
    here = shlex.quote(str(suite.directory))
    if going == "stopped" and not suite.verdicts:
        yield {"what": "go on with this suite", "command": f"python -m kernel_agent suite resume {here}"}
    yield {"what": "judge each kernel again", "command": f"python -m kernel_agent suite confirm {here}"}
    yield {"what": "the table elsewhere", "command": f"python -m kernel_agent suite table {here} --markdown"}
    yield {"what": "this page", "command": f"python -m kernel_agent report {here}"}


def comparison(before: Sequence[Row], after: Sequence[Row]) -> dict[str, Any]:
    """What changed from one suite to another: `changes` by problem, and by which tests it is more than noise."""
    found = compare(before, after)
    return {
        "changes": {line(pair.problem): {"change": str(pair.change), "ratio": pair.ratio} for pair in found.pairs},
        "account": [line(row, 600) for row in account(found)],
    }


def _sums(found: Table) -> dict[str, Any]:
    total = asdict(found.total)
    total["usd"] = total.pop("dollars")
    return total


def _grid(grid: Grid) -> dict[str, Any]:
    return {"head": list(grid.head), "lines": [list(row) for row in grid.lines]}
