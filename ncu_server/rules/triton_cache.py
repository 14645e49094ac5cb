"""Reads which kernels Triton compiled in a build, and from whose source. The candidate may have written any of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

KEPT_IN = "triton"
"""The folder of a build that Triton keeps its kernels in."""
CANDIDATE = "candidate.py"
MOST_FILES, MOST_BYTES = 4096, 4 << 20


@dataclass(frozen=True, slots=True)
class Jitted:
    """Names of kernels: `own` are written in the candidate's module, `foreign` in another (a library, Inductor)."""

    own: frozenset[str] = frozenset()
    foreign: frozenset[str] = frozenset()


def read(cache: Path) -> Jitted:
    """What the cache holds; nothing where there is none. What cannot be read is left out."""
    own: set[str] = set()
    foreign: set[str] = set()
    for name, place in _kernels(cache):
        (own if place == CANDIDATE else foreign).add(name)
    return Jitted(frozenset(own - foreign), frozenset(foreign))


def _kernels(cache: Path) -> Iterator[tuple[str, str | None]]:
    for described in islice(cache.glob("*/*.json"), MOST_FILES):
        try:
            said = json.loads(_start(described))
            text = _start(described.with_suffix(".source")).decode()
        except (OSError, ValueError, RecursionError):
            continue
        name = said.get("name") if isinstance(said, dict) else None
        if isinstance(name, str):
            yield name, _written_in(text, name)


def _written_in(text: str, name: str) -> str | None:
    """The file that a kernel of Triton's first representation says it comes from."""
    head = re.search(rf'tt\.func public @"?{re.escape(name)}"?\(', text)
    tail = re.compile(r"^  \} loc\((#loc\d*)\)", re.MULTILINE).search(text, head.end()) if head else None
    place = re.search(rf'^{tail[1]} = loc\("([^"\n]*)":', text, re.MULTILINE) if tail else None
    return place[1] if place else None


def _start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MOST_BYTES)
