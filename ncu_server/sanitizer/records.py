"""The wire of compute-sanitizer, and its XML read as data."""

from __future__ import annotations

import xml.etree.ElementTree as Tree
from collections.abc import Iterator
from io import BytesIO
from typing import Literal

from pydantic import BaseModel, Field

Tool = Literal["memcheck", "racecheck", "initcheck", "synccheck"]
MOST_BYTES, MOST_RECORDS = 32 << 20, 20_000
LONGEST = 240
HOST = ("hostStack", "hostAccessStack", "hostMemOpStack")


class Spot(BaseModel):
    """A place in a kernel; `candidate_line` is the same line in the candidate that was given."""

    kernel: str | None = None
    file: str | None = None
    line: int | None = None
    candidate_line: int | None = None
    text: str | None = Field(default=None, description="the line itself")


class SanitizerError(BaseModel):
    """One error; what many threads did at one place is one error with a count."""

    kind: str = Field(description="the sanitizer's own word: Precise, Hazard, Initcheck, Api ...")
    severity: str
    text: str
    at: Spot = Spot()
    other: Spot | None = Field(default=None, description="the other side of a race, or the caller")
    size_bytes: int | None = None
    address: str | None = None
    thread: list[int] | None = Field(default=None, description="threadIdx of the first")
    block: list[int] | None = None
    count: int = 1


class SanitizeResult(BaseModel):
    """What one tool of compute-sanitizer found; `clean` says that all was run and nothing found."""

    status: Literal["clean", "errors", "run_error", "build_error", "rejected", "timeout"]
    tool: Tool
    clean: bool
    errors: list[SanitizerError] = []
    total: int = Field(default=0, description="records in all, each thread's counted")
    left_out: int = Field(default=0, description="places that are not shown")
    log: str = Field(default="", description="what the program or its build said, where it failed")
    seconds: float = 0.0
    notes: list[str] = []


def records(xml: bytes) -> tuple[list[SanitizerError], bool]:
    """The errors in what `--xml --save` wrote, and whether it was written to its end."""
    found: list[SanitizerError] = []
    try:
        for _, element in Tree.iterparse(BytesIO(xml[:MOST_BYTES]), events=("end",)):
            if element.tag == "record":
                if len(found) < MOST_RECORDS and (said := _record(element)) is not None:
                    found.append(said)
                element.clear()
    except Tree.ParseError:
        return found, False
    return found, True


def _record(record: Tree.Element) -> SanitizerError | None:
    """One record; None where it is no finding but a fact about launches."""
    kind = _text(record, "kind") or "unknown"
    if kind in ("LaunchInfo", "SyncLog"):
        return None
    spots = list(_spots(record))
    who = record.find("who")
    return SanitizerError(
        kind=kind,
        severity=(_text(record, "level") or "error").lower(),
        text=_short(_text(record, "what/text") or _text(record, "what") or kind),
        at=spots[0] if spots else Spot(),
        other=next((spot for spot in spots[1:] if spot != spots[0]), None),
        size_bytes=_number(_text(record, "what/size") or _text(record, "what/accessSize")),
        address=_text(record, "what/accessAddress") or _text(record, "what/address"),
        thread=_axes(who.find("threadIdx") if who is not None else None),
        block=_axes(who.find("blockIdx") if who is not None else None),
    )


def _spots(element: Tree.Element) -> Iterator[Spot]:
    """Places in device code, in the order of the record: every element that names a function, but on the host."""
    if element.tag in HOST:
        return
    function = _text(element, "func")
    if function:
        path = _text(element, "path") or _text(element, "file")
        name = path.replace("\\", "/").rpartition("/")[2] if path else None
        yield Spot(kernel=function[:LONGEST], file=name, line=_number(_text(element, "line")) or None)
    for child in element:
        yield from _spots(child)


def _text(element: Tree.Element, path: str) -> str | None:
    found = element.find(path)
    return (found.text or "").strip() or None if found is not None else None


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= LONGEST else f"{words[:LONGEST]}..."


def _number(text: str | None) -> int | None:
    try:
        return int(text, 0) if text else None
    except ValueError:
        return None


def _axes(element: Tree.Element | None) -> list[int] | None:
    if element is None:
        return None
    found = [_number(_text(element, axis)) for axis in ("x", "y", "z")]
    return [axis or 0 for axis in found] if any(axis is not None for axis in found) else None


def grouped(found: list[SanitizerError]) -> list[SanitizerError]:
    """One error for each place and text, the most severe and most frequent first."""
    groups: dict[tuple[object, ...], SanitizerError] = {}
    for error in found:
        key = (error.kind, error.severity, _words(error.text), error.at.kernel, error.at.file, error.at.line)
        if key in groups:
            groups[key].count += error.count
        else:
            groups[key] = error.model_copy()
    order = ("error", "fatal", "warning", "info")
    return sorted(groups.values(), key=lambda e: (order.index(e.severity) if e.severity in order else 0, -e.count))


def _words(text: str) -> str:
    """A text without its numbers, which differ from thread to thread."""
    return " ".join(word for word in text.split() if not any(character.isdigit() for character in word))
