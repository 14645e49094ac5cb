"""A folder of kernels made elsewhere: which file stands for which problem."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_agent.errors import UsageError
from kernel_agent.suite.types import SuiteProblem

KERNELBENCH = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel")
"""A kernel's name in a run of KernelBench's scripts: level, problem, sample."""

LEVEL = re.compile(r"level_?(\d+)")
NAMED = 3
"""Files that a sentence names."""


@dataclass(frozen=True, slots=True)
class Kernels:
    """The file of each problem that has one; `missing` says why another has none, and `unused` are the files that
    stand for no problem, as paths within the folder."""

    files: Mapping[str, Path]
    missing: Mapping[str, str]
    unused: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Name:
    """What a file or a problem is called: its path without the ending, its folder, and what stands in its name."""

    path: str
    folder: str
    stem: str
    number: int | None
    level: int | None


def found_kernels(directory: Path, problems: Sequence[SuiteProblem], sample: int = 0) -> Kernels:
    """The kernels in a folder: `<id>.py`, or a file that has the problem's name or number, in the folder of its level
    or in none; of a run of KernelBench's scripts the `sample`-th of each problem.

    A file of exactly a problem's id, or of a deck's whose variant the problem is, goes before others. Raises UsageError
    where there is no such folder, or no Python file in it.
    """
    files = {name: path for path in _python(directory) if (name := _file(path, directory, sample))}
    if not files:
        raise UsageError(f"{directory} holds no kernel: kernels are Python files with a class ModelNew.")
    found = {problem.id: _matching(name_of(problem.id), files) for problem in problems}
    claims = Counter(name.path for names in found.values() for name in names)
    chosen, missing = {}, {}
    for problem, names in found.items():
        if why := _why_not_one(name_of(problem), names, claims, directory):
            missing[problem] = why
        else:
            chosen[problem] = files[names[0]]
    unused = tuple(name.path for name in files if not claims[name.path])
    return Kernels(chosen, missing, unused)


def _python(directory: Path) -> list[Path]:
    if not directory.is_dir():
        raise UsageError(f"There is no folder {directory}.")
    found = sorted(directory.rglob("*.py"))
    return [
        path for path in found if not any(part.startswith((".", "__")) for part in path.relative_to(directory).parts)
    ]


def _file(path: Path, directory: Path, sample: int) -> Name | None:
    """None of a kernel of another sample."""
    name = name_of(path.relative_to(directory).with_suffix("").as_posix())
    if not (run := KERNELBENCH.fullmatch(name.stem)):
        return name
    level, problem, its_sample = map(int, run.groups())
    return Name(name.path, "", "", problem, level) if its_sample == sample else None


def name_of(id: str) -> Name:
    folder, _, stem = id.rpartition("/")
    number, level = re.match(r"\d+", stem), LEVEL.fullmatch(folder.rpartition("/")[2])
    return Name(id, folder, stem, int(number[0]) if number else None, int(level[1]) if level else None)


def _matching(problem: Name, files: Mapping[Name, Path]) -> list[Name]:
    exact = [name for name in files if name.path == problem.path or problem.path.startswith(f"{name.path}/")]
    return sorted(exact, key=lambda name: len(name.path))[-1:] or [name for name in files if _fits(problem, name)]


def _fits(problem: Name, name: Name) -> bool:
    """Whether a file has a problem's name or number, in a folder of the same name or level, or in none."""
    if problem.level is not None and name.level is not None:
        if problem.level != name.level:
            return False
    elif name.folder and name.folder != problem.folder:
        return False
    return name.stem == problem.stem or (problem.number is not None and name.number == problem.number)


def _why_not_one(problem: Name, names: Sequence[Name], claims: Mapping[str, int], directory: Path) -> str:
    if not names:
        return f"{directory} has no file for it"
    if len(names) > 1:
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        return f"several files may be for it: {', '.join(name.path for name in names[:NAMED])}{more}"
    (name,) = names
    exact = name.path == problem.path or problem.path.startswith(f"{name.path}/")
    return "" if exact or claims[name.path] == 1 else f"{name.path} may be for other problems too"
