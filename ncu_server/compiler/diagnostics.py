"""What nvcc, ptxas, gcc, clang and the linker say of a source, as data."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ncu_server.wire.compilation import Diagnostic

PLACED = re.compile(
    r"^(?P<file>[^\s:(][^:(\n]*?)(?:\((?P<nv>\d+)\)|:(?P<gcc>\d+)(?::\d+)?): "
    r"(?:fatal |catastrophic )?(?P<severity>error|warning|remark)(?: #[\w-]+)?: (?P<text>.*)$"
)
OF_PTX = re.compile(r"^ptxas (?P<file>\S+), line (?P<line>\d+); (?P<severity>fatal|error|warning)\s*:\s*(?P<text>.*)$")
BARE = re.compile(r"^(?:nvcc|ptxas|nvlink|cicc|cudafe\+\+)\s*(?P<severity>fatal|error|warning)\s*:\s*(?P<text>.*)$")
LINKER = re.compile(r"^(?P<text>(?:.*: )?undefined reference to .*|.*\bld\b.*error: .*|collect2: error: .*)$")
USED = re.compile(r"[^\s:]+: In (instantiation|substitution)|[^\s:]+:\d+:\d+:\s+required from")
"""How a template came to be used: gcc says it before the error."""
NOTE = re.compile(r"[^\s:(]+(?::(?P<gcc>\d+)(?::\d+)?|\((?P<nv>\d+)\)):\s+note\b")
ECHOED = ("[", "FAILED:", "ninja", "stdout:", "stderr:")
"""How rows begin in which ninja repeats its command lines."""
TALLY = re.compile(r"\d+ errors? detected|[^\s:]+: In ")
CARET = re.compile(r"[\s|~]*\^[\s~^]*")
NUMBERED = re.compile(r"\s*(?P<number>\d+) \|(?P<text>.*)")
LONGEST_TEXT, LONGEST_LINE = 240, 120
NOTED, MOST_NOTES = 4, 8
"""Diagnostics that keep their notes, and how many each keeps: what follows the first is mostly its consequence."""


@dataclass(slots=True)
class Remark:
    """A diagnostic with all of its rows, and the lines of code that they quote, each by its number in the file."""

    said: Diagnostic
    rows: list[str] = field(default_factory=list)
    quoted: list[tuple[int, str]] = field(default_factory=list)


def spoken(log: str) -> list[str]:
    """The rows without ninja's echo of its command lines."""
    return [row for row in log.splitlines() if not row.startswith(ECHOED) and " -o " not in row]


def diagnostics(log: str, candidate: str | None = None) -> list[Diagnostic]:
    """What compilers said in `log`, errors first; `candidate` is the module that their files were cut from."""
    found: dict[tuple[object, ...], Remark] = {}
    for remark in _remarks(spoken(log)):
        _read(remark)
        said = remark.said
        found.setdefault((said.severity, said.text, said.file, said.line), remark)
    if candidate is not None:
        _place(list(found.values()), candidate.splitlines())
    order = ("error", "warning", "remark")
    ordered = sorted((remark.said for remark in found.values()), key=lambda said: order.index(said.severity))
    for said in ordered[NOTED:]:
        said.notes = []
    return ordered


def _remarks(rows: Sequence[str]) -> Iterator[Remark]:
    """Each diagnostic with its rows: notes that explain it, and before it how its template came to be used."""
    remark: Remark | None = None
    before: list[str] = []
    for row in filter(str.strip, rows):
        if said := _said(row):
            if remark:
                yield remark
            remark, before = Remark(said, before), []
        elif USED.match(row):
            before = [*before, row]
        elif remark and not TALLY.match(row):
            remark.rows.append(row)
    if remark:
        yield remark


def _said(row: str) -> Diagnostic | None:
    for pattern in (PLACED, OF_PTX, BARE, LINKER):
        if found := pattern.match(row):
            parts = found.groupdict()
            line = parts.get("nv") or parts.get("gcc") or parts.get("line")
            severity = parts.get("severity") or "error"
            return Diagnostic.model_validate(
                {
                    "severity": "error" if severity == "fatal" else severity,
                    "text": _cut(parts["text"].strip(), LONGEST_TEXT),
                    "file": Path(parts["file"]).name if parts.get("file") else None,
                    "line": line and int(line),
                }
            )
    return None


def _read(remark: Remark) -> None:
    """Sort the rows of a remark into the line that it is about, lines that notes are about, and notes.

    A compiler quotes a line above the caret that points into it.
    """
    said, at = remark.said, remark.said.line
    notes: list[str] = []
    for row, following in zip(remark.rows, [*remark.rows, ""][1:], strict=True):
        if note := NOTE.match(row):
            at = int(note["gcc"] or note["nv"])
        if at is not None and CARET.fullmatch(following) and not note:
            numbered = NUMBERED.fullmatch(row)
            text = (numbered["text"] if numbered else row).strip()
            remark.quoted.append((int(numbered["number"]) if numbered else at, text))
            if said.source is None and at == said.line:
                said.source = text[:LONGEST_LINE] or None
                continue
        if not CARET.fullmatch(row):
            notes.append(_cut(row.rstrip(), LONGEST_LINE))
    said.notes = notes[:MOST_NOTES]


def _place(remarks: Sequence[Remark], candidate: Sequence[str]) -> None:
    """Give each diagnostic its line in the candidate.

    A compiler counts in a file that begins with headers of others, so the distance to the candidate's own lines is read
    off the lines that it quotes; the commonest distance of a file counts, since a short line may stand in many places.
    """
    places: dict[str, list[int]] = {}
    for number, line in enumerate(candidate, 1):
        places.setdefault(line.strip(), []).append(number)
    votes: dict[str | None, Counter[int]] = {}
    for remark in remarks:
        for at, text in remark.quoted:
            votes.setdefault(remark.said.file, Counter()).update(number - at for number in places.get(text, ()))
    for said in (remark.said for remark in remarks):
        if said.line is not None and (count := votes.get(said.file)):
            own = said.line + count.most_common(1)[0][0]
            said.candidate_line = own if 0 < own <= len(candidate) else None


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}..."
