"""The files by which the server and the process that a profiler watches speak: what to do, and what became of it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SPEC, TOLD, OUTPUT, TRACE = "spec.json", "told.jsonl", "output.txt", "trace-{}.json"
FILE, BEGUN, BUILDS, AGREES, GO = "module_alone.py", "begun", "builds", "agrees", "go"
"""A module that is tried by itself, the word for what is tried of it next, the first two trials, and the pipe on which
the process waits between them for a byte: only then it uses the device."""
TAIL = 2000
RANGE = "candidate {}"
"""The NVTX range around a candidate's call: by it the launches of a report are told apart."""


@dataclass(frozen=True, slots=True)
class Handoff:
    """Whose turn it was, who came to the end of the call, and the traces of those that raised.

    `output` is the end of what the process printed.
    """

    begun: frozenset[int]
    done: frozenset[int]
    faults: Mapping[int, str]
    output: str = ""


def read(directory: Path) -> Handoff:
    """What the process said. It ran foreign code, so that none of it need be true."""
    begun, done, faults = set(), set(), {}
    try:
        rows = (directory / TOLD).read_text(errors="replace").splitlines()
    except OSError:
        rows = []
    for row in rows:
        try:
            said = json.loads(row)
        except (ValueError, RecursionError):
            continue
        match said:
            case {"candidate": int(number), "begun": _}:
                begun.add(number)
            case {"candidate": int(number), "done": _}:
                done.add(number)
            case {"candidate": int(number), "fault": str(trace)}:
                faults[number] = trace
    return Handoff(frozenset(begun), frozenset(done), faults, _tail(directory / OUTPUT))


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            return file.read(TAIL).decode(errors="replace")
    except OSError:
        return ""
