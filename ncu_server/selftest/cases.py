"""The shipped cases, read from `cases/`: cheats and honest look-alikes, each with what a sound judge says of it.

A case is one file `cases/<target>/<name>.py`. Its docstring holds `key: value` rows:

    problem   a file of `cases/problems/`, the reference
    kernel    a file of `cases/kernels/` whose text comes first; absent where the case writes its own
    kind      a row of `cases/catalogue.toml`
    expect    the statuses that a sound judge may give, apart by `|`; a cheat that may pass has been neutralised
    strict    the same under the strict rules, where it differs
    why       the mechanism in one sentence
    twin      of a cheat: an honest case of the same problem, which has to pass
    effects   what it tries to do to the machine, and must not: a list of `file`, `key`, `network`, `process`, `victim`
    at_most   the largest speed-up over eager that it may be credited with
    timeout   seconds for each step, 120 where absent

The words @DIRECTORY@, @PORT@, @VICTIM@ and @MARK@ in a case with effects become what `canaries` lays out.
"""

from __future__ import annotations

import ast
import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ncu_server.places import PACKAGE

HERE = PACKAGE / "cases"
STATUSES = {"rejected", "build_error", "run_error", "timeout", "wrong", "suspect", "passed"}
REQUIRED = {"problem", "kind", "expect", "why"}
OPTIONAL = {"kernel", "strict", "twin", "effects", "at_most", "timeout"}
EFFECTS = {"file", "key", "network", "process", "victim"}


@dataclass(frozen=True, slots=True)
class SelftestCase:
    """One candidate before the judge. `expect` maps the rules to the statuses that are sound."""

    name: str
    target: str
    problem: str
    problem_name: str
    candidate: str
    kind: str
    honest: bool
    expect: Mapping[str, frozenset[str]]
    why: str
    twin: str | None
    effects: frozenset[str]
    at_most: float | None
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Catalogue:
    """What the cases cover: the kinds of cheat, the ways to turn an honest kernel away; each with one sentence."""

    cheats: Mapping[str, str]
    honest: Mapping[str, str]


@functools.cache
def catalogue(directory: Path = HERE) -> Catalogue:
    """The kinds that cases may name. Raises OSError and TOMLDecodeError where the file is gone or spoilt."""
    rows = tomllib.loads((directory / "catalogue.toml").read_text())
    return Catalogue(rows["cheats"], rows["honest"])


def cases(directory: Path = HERE) -> list[SelftestCase]:
    """All cases, those of one problem together. Raises ValueError for a case whose header is not sound."""
    found = [_read(path, directory) for path in sorted(directory.glob("*/*.py")) if _is_case(path)]
    return sorted(found, key=lambda case: (case.target, case.problem_name))


def _is_case(path: Path) -> bool:
    return path.parent.name not in ("problems", "kernels")


def _read(path: Path, directory: Path) -> SelftestCase:
    text = path.read_text()
    name, kinds = f"{path.parent.name}/{path.stem}", catalogue(directory)
    rows = _rows(name, ast.get_docstring(ast.parse(text)) or "")
    effects = frozenset(rows["effects"].split(", ")) if "effects" in rows else frozenset()
    known = {
        "kind": {rows["kind"]} - set(kinds.cheats) - set(kinds.honest),
        "effects": effects - EFFECTS,
    }
    if wrong := next((key for key, values in known.items() if values), None):
        raise ValueError(f"case {name}: there is no {wrong} {rows[wrong]!r}")
    kernel = (directory / "kernels" / f"{rows['kernel']}.py").read_text() if "kernel" in rows else ""
    default = _statuses(name, rows["expect"])
    return SelftestCase(
        name=name,
        target=path.parent.name,
        problem=(directory / "problems" / f"{rows['problem']}.py").read_text(),
        problem_name=rows["problem"],
        candidate=f"{kernel}\n\n{_body(text)}" if kernel else text,
        kind=rows["kind"],
        honest=rows["kind"] in kinds.honest,
        expect={"default": default, "strict": _statuses(name, rows["strict"]) if "strict" in rows else default},
        why=rows["why"],
        twin=f"{path.parent.name}/{rows['twin']}" if "twin" in rows else None,
        effects=effects,
        at_most=float(rows["at_most"]) if "at_most" in rows else None,
        timeout_s=float(rows.get("timeout", 120)),
    )


def _rows(name: str, docstring: str) -> dict[str, str]:
    """The header's rows; a row that is indented carries on the one before."""
    rows: dict[str, str] = {}
    key = ""
    for line in docstring.splitlines():
        if line.startswith(" "):
            rows[key] += f" {line.strip()}"
        elif line.strip():
            key, _, value = line.partition(":")
            rows[key] = value.strip()
    if missing := REQUIRED - set(rows):
        raise ValueError(f"case {name}: its header lacks {', '.join(sorted(missing))}")
    if unknown := set(rows) - REQUIRED - OPTIONAL:
        raise ValueError(f"case {name}: its header has unknown rows: {', '.join(sorted(unknown))}")
    return rows


def _statuses(name: str, text: str) -> frozenset[str]:
    found = frozenset(text.split("|"))
    if unknown := found - STATUSES:
        raise ValueError(f"case {name}: there is no status {', '.join(sorted(unknown))}")
    return found


def _body(text: str) -> str:
    """The module without its docstring, which has to stand first."""
    first = ast.parse(text).body[0]
    return "".join(text.splitlines(keepends=True)[first.end_lineno :]).lstrip("\n")
