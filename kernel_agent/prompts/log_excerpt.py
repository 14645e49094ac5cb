"""What matters in a judge's log: the first errors, and the lines of the candidate that they point at."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from kernel_agent.run.types import Diagnostic, Evaluation
from kernel_agent.text import clean

ERRORS = 4
"""Errors of a compiler that are kept; what follows the first few is mostly their consequence."""

CHARACTERS = 4000
WIDTH = 300
AROUND = 1
"""Lines shown before and after one that a log points at."""

FRAME = re.compile(r'\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(, in (?P<name>.+))?')
OURS = "candidate.py"
INTERPRETER = re.compile(r"(\./)?(Objects|Python|Modules|Include|Parser)/|\./signal/|<unknown>$")


def excerpt(evaluation: Evaluation, source: str, limit: int = CHARACTERS) -> str:
    """What whoever mends `source` needs of what the judge said, in about `limit` characters.

    A compiler's first errors without its warnings, a traceback's own frames without those of libraries, a crash without
    the interpreter's stack; then the lines of the source that these point at, numbered.
    """
    log = clean(evaluation.log).strip()
    rows = [row[:WIDTH].rstrip() for row in log.split("\n")]
    errors = evaluation.diagnostics
    if errors:
        kept = [clean(row)[:WIDTH] for row in _first(errors)]
        lines = [error.candidate_line for error in errors[:ERRORS] if error.candidate_line is not None]
    elif "Traceback (most recent call last):" in log:
        kept, lines = _traceback(rows), [int(f["line"]) for f in _frames(rows) if f["file"] == OURS]
    else:
        kept, lines = _crash(rows), []
    shown = _shown(source, lines)
    text = shortened("\n".join(kept), limit - len(shown))
    return f"{text}\n\nLines of the candidate that this points at:\n{shown}" if shown else text


def shortened(text: str, limit: int) -> str:
    """The text, or its head and its end where it is longer than `limit` characters."""
    head, tail = limit * 3 // 4, limit // 4
    return (
        text if len(text) <= limit else f"{text[:head]}\n[... {len(text) - head - tail} characters ...]\n{text[-tail:]}"
    )


def _first(errors: Sequence[Diagnostic]) -> Iterator[str]:
    for error in errors[:ERRORS]:
        yield str(error)
        yield from ([f"    {error.source}"] if error.source else [])
        yield from error.notes
    more = len(errors) - ERRORS
    if more > 0:
        yield f"... and {more} more error{'s' if more > 1 else ''}"


def _frames(rows: Iterable[str]) -> Iterator[re.Match[str]]:
    yield from (frame for row in rows if (frame := FRAME.match(row)))


def _traceback(rows: Sequence[str]) -> list[str]:
    """The candidate's own frames, and whatever is not a frame: what was raised, and what was said before."""
    kept, own = [], True
    for row in rows:
        if frame := FRAME.match(row):
            own = frame["file"] == OURS
        elif not row.startswith("    "):
            own = not row.startswith("Traceback (most")
        if own and not re.fullmatch(r"\s*[\^~]+", row):
            kept.append(row)
    return [re.sub(r": ?Traceback \(most recent call last\):$", ":", row) for row in kept]


def _crash(rows: Sequence[str]) -> list[str]:
    """The rows without the frames of the interpreter's own C code."""
    return [row for row in rows if not ((frame := FRAME.match(row)) and _interpreter(frame))]


def _interpreter(frame: re.Match[str]) -> bool:
    named = frame["name"] or ""
    return bool(INTERPRETER.match(frame["file"])) and ("(" not in named or named.startswith("0x"))


def _shown(source: str, lines: Iterable[int]) -> str:
    rows, pointed = source.split("\n"), set(lines)
    near = sorted({n for line in pointed for n in range(line - AROUND, line + AROUND + 1) if 0 < n <= len(rows)})
    text, last = [], 0
    for number in near:
        text += ["..."] if last and number > last + 1 else []
        text.append(f"{'>' if number in pointed else ' '} {number:4} | {rows[number - 1][:WIDTH]}")
        last = number
    return "\n".join(text)
