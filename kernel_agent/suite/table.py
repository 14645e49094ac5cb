"""A suite's table: a line for each problem and what they come to, as Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from io import StringIO
from typing import Any

from pydantic import TypeAdapter, ValidationError

from kernel_agent import text
from kernel_agent.errors import UsageError
from kernel_agent.run.types import Interval
from kernel_agent.suite.sums import THRESHOLDS, Speed, Sums, by_level, sums
from kernel_agent.suite.types import Row

REASON = 160
"""Characters of a reason in a line."""

INTERVALS = ("speedup", "versus_compile", "reached")
"""Fields of a row that are intervals."""

NOTES = (
    "fast_p: the share of all problems whose kernel is right and more than p times as fast.",
    "Means are geometric. Over all: where there is no kernel, the original counts as it is, 1 over eager PyTorch.",
    "Times and speed-ups come from fresh processes with new secret inputs; intervals are at 95 %.",
)
"""What has to be known to read the table."""


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of a suite, what all of them come to, and what those of each level do."""

    title: str
    rows: tuple[Row, ...]
    total: Sums
    levels: Mapping[str, Sums] = field(default_factory=dict)

    @property
    def parts(self) -> dict[str, Sums]:
        """All, then each level, where there are several."""
        return {"all": self.total, **self.levels}


@dataclass(frozen=True, slots=True)
class Grid:
    """Cells with a head, to be drawn; the first column names the line."""

    head: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]


def table(title: str, rows: Sequence[Row]) -> Table:
    """The table of these rows, in their order."""
    return Table(title, tuple(rows), sums(rows), by_level(rows))


COLUMNS: Mapping[str, Callable[[Row], str]] = {
    "problem": lambda row: row.problem,
    "status": lambda row: _status(row.status),
    "kernel by": lambda row: row.authorship or "",
    "kernel ms": lambda row: _ms(row.kernel_us),
    "eager ms": lambda row: _ms(row.eager_us),
    "compile ms": lambda row: _ms(row.compile_us),
    "mode": lambda row: row.compile_mode or "",
    "limit ms": lambda row: _ms(row.limit_us),
    "over eager": lambda row: times(row.speedup),
    "over compile": lambda row: times(row.versus_compile),
    "of the limit": lambda row: _share(row.reached),
    "judged": lambda row: str(row.evaluations),
    "cost": lambda row: _cost(row.tokens, row.dollars),
    "minutes": lambda row: _minutes(row.minutes, row.granted_minutes),
    "held": lambda row: {None: "", True: "yes", False: "no"}[row.held],
}
"""The columns of the problems, and what stands in each; Markdown, the terminal and CSV differ in the latter alone."""


def problems(found: Table) -> Grid:
    """A line for each problem, without the columns that no problem has anything in."""
    lines = [[cell(row) for cell in COLUMNS.values()] for row in found.rows]
    used = [place for place in range(len(COLUMNS)) if any(line[place] for line in lines)]
    head = tuple(COLUMNS)
    return Grid(tuple(head[place] for place in used), tuple(tuple(line[place] for place in used) for line in lines))


def counts(found: Table) -> Grid:
    """How the problems ended, how many kernels are right and held, and what all of it took."""
    states = sorted(found.total.status)
    head = ("", "problems", "correct", "covered", *map(_status, states), "held", "judged", "cost", "minutes")
    lines = [
        (
            name,
            str(part.problems),
            _of(part.correct, part.problems),
            _of(part.covered, part.problems),
            *(str(part.status.get(state, 0)) for state in states),
            f"{part.held} of {part.confirmed}" if part.confirmed else "",
            str(part.evaluations),
            _cost(part.tokens, part.dollars),
            _minutes(part.minutes),
        )
        for name, part in found.parts.items()
    ]
    return Grid(head, tuple(lines))


def speeds(found: Table) -> Grid:
    """fast_p and the means: of the kernels over eager PyTorch and over torch.compile, and of torch.compile's own."""
    head = ("", *(f"fast_{p:g}" for p in THRESHOLDS), "mean over all", "mean over correct", "measured")
    lines = [
        (what if name == "all" else f"{name}: {what}", *_speed(speed, part.problems))
        for name, part in found.parts.items()
        for what, speed in (
            ("kernels over eager", part.eager),
            ("kernels over torch.compile", part.versus_compile),
            ("torch.compile over eager", part.compile),
        )
    ]
    return Grid(head, tuple(lines))


def remarks(found: Table) -> Iterator[str]:
    """A line for each problem that has a reason or a note, and how to read the table."""
    for row in found.rows:
        if row.held is False:
            yield f"{row.problem} did not hold: {text.line(row.why_not_held or 'not known', REASON)}"
        if row.reason:
            yield f"{row.problem}: {text.line(row.reason, REASON)}"
        yield from (f"{row.problem}: {text.line(note, REASON)}" for note in row.notes)
    devices = sorted({row.device for row in found.rows if row.device})
    if devices:
        yield f"Measured on {' and '.join(devices)}."
    if len(devices) > 1:
        yield "Times of different devices are not compared."
    yield from NOTES


def markdown(found: Table) -> str:
    """The whole table as a page."""
    grids = [_markdown(grid) for grid in (counts(found), speeds(found), problems(found))]
    said = "\n".join(f"- {_plain(remark)}" for remark in remarks(found))
    return "\n\n".join([f"# {_plain(found.title)}", *grids, said]) + "\n"


def comma_separated(found: Table) -> str:
    """A line for each problem with every field of its row; an interval is three columns."""
    out = StringIO()
    writer = csv.DictWriter(out, list(_flat(Row("", ""))), lineterminator="\n")
    writer.writeheader()
    writer.writerows(map(_flat, found.rows))
    return out.getvalue()


def as_json(found: Table) -> str:
    """All of it, which `rows_in` reads back."""
    return json.dumps(asdict(found), indent=2, ensure_ascii=False) + "\n"


def rows_in(written: str, name: str) -> tuple[Row, ...]:
    """The rows of a table that `as_json` wrote. Raises UsageError where the text is none."""
    try:
        found = json.loads(written)
        return TypeAdapter(tuple[Row, ...]).validate_python(found["rows"])
    except (ValueError, KeyError, TypeError, ValidationError, RecursionError):
        raise UsageError(f"{name} is no table of a suite: `suite table RUN --json` writes one.") from None


def times(interval: Interval | None) -> str:
    """A speed-up with its interval; without one where it is no measurement."""
    if interval is None or interval.low == interval.high:
        return f"{interval.median:.2f}x" if interval else ""
    return f"{interval.median:.2f}x [{interval.low:.2f}, {interval.high:.2f}]"


def _status(status: str) -> str:
    return status.replace("_", " ")


def _ms(us: float | None) -> str:
    return "" if us is None else f"{us / 1e3:,.0f}" if us >= 1e6 else f"{us / 1e3:.3g}"


def _share(interval: Interval | None) -> str:
    return f"{interval.median:.0%} [{interval.low:.0%}, {interval.high:.0%}]" if interval else ""


def _cost(tokens: int, dollars: float | None) -> str:
    if not tokens:
        return "0"
    return f"{tokens:,} tokens" if dollars is None else f"${dollars:.2f}"


def _minutes(minutes: float, granted: float | None = None) -> str:
    return f"{minutes:.1f}" if granted is None else f"{minutes:.1f} of {granted:.1f}"


def _of(count: int, all_: int) -> str:
    return f"{count} ({count / all_:.0%})" if all_ else "0"


def _speed(speed: Speed, problems: int) -> tuple[str, ...]:
    means = [f"{mean:.2f}x" if mean else "" for mean in (speed.over_all, speed.over_correct)]
    return (*(f"{share:.2f}" for share in speed.fast.values()), *means, f"{speed.measured} of {problems}")


def _markdown(grid: Grid) -> str:
    rows = [grid.head, tuple("---" for _ in grid.head), *grid.lines]
    return "\n".join(f"| {' | '.join(map(_plain, row))} |" for row in rows)


def _plain(cell: str) -> str:
    """As it may stand in a cell: names and reasons are others' words."""
    escaped = "".join(f"\\{c}" if c in "|\\`*<" else c for c in text.line(cell, 4 * REASON))
    return escaped.replace("](", "]\\(")


def _flat(row: Row) -> dict[str, Any]:
    """A row's fields; an interval is three of them, which are empty where it is missing."""
    found: dict[str, Any] = {}
    for name in (each.name for each in fields(row)):
        value = getattr(row, name)
        if name in INTERVALS:
            ends = asdict(value) if value else dict.fromkeys(("low", "median", "high"))
            found |= {f"{name}_{end}": number for end, number in ends.items()}
        else:
            found[name] = "; ".join(value) if isinstance(value, tuple) else value
    return found
