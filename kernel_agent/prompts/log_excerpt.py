"""What matters in a judge's log: the first errors, and the lines of the candidate that they point at."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

ERRORS = 4
"""Errors of a compiler that are kept; what follows the first few is mostly their consequence."""

ROWS = 12
"""Rows kept of one error, its notes included."""

CHARACTERS = 4000
WIDTH = 300
AROUND = 1
"""Lines shown before and after one that a log points at."""

HEAD = re.compile(
    r"(?P<file>[^\s:(]+)(?::(?P<gcc>\d+)(?::\d+)?:|\((?P<nvcc>\d+)\):)\s+"
    r"(?P<kind>(?:fatal |catastrophic )?error|warning|note|remark)\b"
)
UNPLACED = re.compile(r"(ptxas|nvlink|nvcc)\s+(error|fatal)|.*undefined reference to|.*\bld\b.*error:|collect2: error")
TALLY = re.compile(r"\d+ errors? detected|[^\s:]+: In ")
USED = re.compile(r"[^\s:]+: In (instantiation|substitution)|[^\s:]+:\d+:\d+:\s+required from")
ECHO = re.compile(r"\s*(?P<number>\d+) \|(?P<text>.*)|(?P<bare>\s{2,}\S.*)")
FRAME = re.compile(r'\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(, in (?P<name>.+))?')
OURS = "candidate.py"
INTERPRETER = re.compile(r"(\./)?(Objects|Python|Modules|Include|Parser)/|\./signal/|<unknown>$")


@dataclass(frozen=True, slots=True)
class Remark:
    """One remark of a compiler: where it points, and its rows."""

    file: str
    line: int
    kind: str
    rows: tuple[str, ...]


def excerpt(log: str, source: str, limit: int = CHARACTERS) -> str:
    """What whoever mends `source` needs of the log, in about `limit` characters.

    A compiler's first errors without its warnings, a traceback's own frames without those of libraries, a crash without
    the interpreter's stack; then the lines of the source that these point at, numbered.
    """
    rows = [row[:WIDTH].rstrip() for row in log.strip().split("\n")]
    remarks = tuple(_remarks(rows))
    errors = [remark for remark in remarks if "error" in remark.kind]
    if errors:
        kept, lines = _first(errors), _pointed(remarks, errors[:ERRORS], source)
    elif "Traceback (most recent call last):" in log:
        kept, lines = _traceback(rows), [int(f["line"]) for f in _frames(rows) if f["file"] == OURS]
    elif unplaced := [row for row in rows if UNPLACED.match(row)]:
        kept, lines = unplaced[:ROWS], []
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


def _remarks(rows: Sequence[str]) -> Iterator[Remark]:
    """The remarks of gcc, clang and nvcc. A note belongs to what it explains, and so does a template's use."""
    found: Remark | None = None
    before: list[str] = []
    for row in filter(str.strip, rows):
        head = HEAD.match(row)
        if head and head["kind"] not in ("note", "remark"):
            if found:
                yield found
            found = Remark(head["file"], int(head["gcc"] or head["nvcc"]), head["kind"], (*before, row))
            before = []
        elif USED.match(row):
            before.append(row)
        elif found and not TALLY.match(row):
            found = replace(found, rows=(*found.rows, row))
    if found:
        yield found


def _first(errors: Sequence[Remark]) -> list[str]:
    kept = [row for error in errors[:ERRORS] for row in error.rows[:ROWS]]
    more = len(errors) - ERRORS
    return [*kept, f"... and {more} more error{'s' if more > 1 else ''}"] if more > 0 else kept


def _pointed(remarks: Iterable[Remark], errors: Iterable[Remark], source: str) -> list[int]:
    """The source's own line numbers of the errors.

    A compiler counts in a file that begins with headers of others, so the distance to the candidate's own lines is read
    off the lines that it quotes; the commonest distance of a file counts, since a short line may stand in many places.
    """
    places: dict[str, list[int]] = {}
    for number, line in enumerate(source.split("\n"), 1):
        places.setdefault(line.strip(), []).append(number)
    votes: dict[str, Counter[int]] = {}
    for remark in remarks:
        for at, text in _quoted(remark):
            votes.setdefault(remark.file, Counter()).update(number - at for number in places.get(text, ()))
    apart = {file: count.most_common(1)[0][0] for file, count in votes.items() if count}
    return [error.line + apart[error.file] for error in errors if error.file in apart]


def _quoted(remark: Remark) -> Iterator[tuple[int, str]]:
    """The lines of code that a remark quotes, each with its number in the file that was compiled."""
    at = remark.line
    for row in remark.rows:
        if head := HEAD.match(row):
            at = int(head["gcc"] or head["nvcc"])
        elif echo := ECHO.fullmatch(row):
            yield int(echo["number"] or at), (echo["text"] or echo["bare"] or "").strip()


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
