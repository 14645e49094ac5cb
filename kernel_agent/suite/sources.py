"""A path becomes the problems of a suite: a file, or a folder of them in one of the forms that collections have."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kernel_agent.errors import ProblemError, UsageError
from kernel_agent.problem.from_python import source_of
from kernel_agent.problem.from_source import load_problem
from kernel_agent.problem.helpers import beside
from kernel_agent.suite import decks
from kernel_agent.suite.types import SuiteProblem, unique

LEVEL = re.compile(r"level_?(\d+)")
"""A folder of KernelBench that holds a level."""

WEIGHTS = (".safetensors", ".bin")


@dataclass(frozen=True, slots=True)
class Collection:
    """The problems found at a path. `faults` says of some, by id, why they cannot be played; `notices` what was left
    out, a sentence each."""

    problems: tuple[SuiteProblem, ...]
    faults: Mapping[str, str] = field(default_factory=dict)
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """A file or a folder that is said to be a problem, and the path of its id."""

    path: Path
    id: str

    @property
    def number(self) -> int | None:
        """The number in its name: of `19_ReLU` and `task_19` alike 19."""
        name = Path(self.id).name
        found = re.match(r"(\d+)", name) or re.search(r"(\d+)$", name)
        return int(found[1]) if found else None


def collect(path: Path, level: int | None = None, ids: str | None = None) -> Collection:
    """The problems at a path, in the order of their levels and numbers.

    A path is a checkout of KernelBench (`level` picks one), a folder with decks, with robust-kbench's tasks or with
    files in KernelBench's form, at any depth, or one file. `ids` such as `1-20,40` picks by the number in a problem's
    name, where it has none by its place among those found. Raises UsageError where there is none, or two have one id.
    """
    places = _places(path, level)
    wanted = None if ids is None else _numbers(ids)
    picked = [place for at, place in enumerate(places, 1) if wanted is None or (place.number or at) in wanted]
    if not picked:
        what = f" with the ids {ids}" if places and ids is not None else ""
        raise UsageError(f"{path} holds no problem{what}: name a folder with PyTorch files in KernelBench's form.")
    found = list(_read(picked))
    away = {problem.id: missing for problem, _ in found if (missing := _missing_weights(problem))}
    notices = (*_backward(picked), *([_left_out(away)] if away else []))
    there = [(problem, why) for problem, why in found if problem.id not in away]
    faults = {problem.id: why for problem, why in there if why}
    if len(faults) == len(there):
        raise UsageError(f"Nothing of {path} can be played here: {[*faults.values(), *notices][0]}")
    return Collection(_separate(unique(tuple(problem for problem, _ in there))), faults, notices)


def _places(path: Path, level: int | None) -> list[Place]:
    if not path.exists():
        raise UsageError(f"There is no file or folder {path}.")
    if path.is_file():
        if level is not None:
            raise UsageError(f"--level picks a level of a KernelBench checkout, and {path} is a file.")
        return [Place(path, path.stem)]
    if decks.is_deck(path) or decks.is_task(path):
        return [Place(path, path.resolve().name)]
    root = path / "KernelBench" if (path / "KernelBench" / "level1").is_dir() else path
    levels = {int(found[1]): one for one in root.iterdir() if (found := LEVEL.fullmatch(one.name)) and one.is_dir()}
    if level is not None and level not in levels:
        there = f"there are {', '.join(map(str, sorted(levels)))}" if levels else "it has no folders level1, level2 ..."
        raise UsageError(f"{path} has no level {level}: {there}.")
    if not levels:
        return _problems(sorted(_walk(path, path), key=_order))
    chosen = [levels[one] for one in sorted(levels) if level in (None, one)]
    return [place for one in chosen for place in _problems(sorted(_walk(one, root), key=_order))]


def _walk(folder: Path, root: Path) -> Iterator[Place]:
    """What lies in a folder and below: a folder that is a problem, else each Python file."""
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise UsageError(f"The folder {folder} cannot be read ({error.strerror}).") from None
    for one in entries:
        id = one.relative_to(root).with_suffix("" if one.is_file() else one.suffix).as_posix()
        if one.name.startswith((".", "__")):
            continue
        if one.is_dir():
            yield from [Place(one, id)] if decks.is_deck(one) or decks.is_task(one) else _walk(one, root)
        elif one.suffix == ".py":
            yield Place(one, id)


def _order(place: Place) -> tuple[str, int, str]:
    parent, _, name = place.id.rpartition("/")
    return parent, place.number if place.number is not None else -1, name


def _problems(places: list[Place]) -> list[Place]:
    """Without files that hold no problem of their own where others import them, or where they lie beside decks and
    tasks, whose scripts they are."""
    decked = any(place.path.is_dir() for place in places)
    helpers = {one for place in places for one in _helpers(place.path)}
    aside = [place for place in places if not place.path.is_dir() and (decked or place.path.resolve() in helpers)]
    return [place for place in places if place not in aside or _fault(place.path) is None]


def _backward(places: Iterable[Place]) -> tuple[str, ...]:
    count = sum((place.path / decks.BACKWARD).is_file() for place in places)
    what = "1 task asks" if count == 1 else f"{count} tasks ask"
    rest = (
        f"for gradients, which no kernel of ours gives: {'that part is' if count == 1 else 'those parts are'} left out."
    )
    return (f"{what} {rest}",) if count else ()


def _fault(file: Path) -> str | None:
    try:
        load_problem(source_of(file, helpers=[]).code, file.stem, "")
    except ProblemError as fault:
        return str(fault)
    return None


def _numbers(ids: str) -> set[int]:
    found: set[int] = set()
    for part in ids.split(","):
        bounds = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        if not bounds:
            raise UsageError(f"--ids are numbers and ranges such as 1-20,40, not {ids}.")
        found |= set(range(int(bounds[1]), int(bounds[2] or bounds[1]) + 1))
    return found


def _read(places: Iterable[Place]) -> Iterator[tuple[SuiteProblem, str | None]]:
    """Each problem, with what is wrong with it, if anything is."""
    for place in places:
        folder = place.path.is_dir()
        read: Callable[[Path], Iterator[decks.Variant]] = _file
        if folder:
            read = decks.deck if decks.is_deck(place.path) else decks.task
        try:
            for one in read(place.path):
                id = f"{place.id}/{one.suffix}" if one.suffix else place.id
                yield checked(SuiteProblem(id, one.code, notes=one.notes))
        except ProblemError as fault:
            yield SuiteProblem(place.id, ""), str(fault)


def checked(problem: SuiteProblem) -> tuple[SuiteProblem, str | None]:
    """A problem, with what is wrong with its text, if anything is."""
    try:
        load_problem(problem.code, problem.id, "", problem.shapes or None)
    except ProblemError as fault:
        return problem, str(fault)
    return problem, None


def _file(path: Path) -> Iterator[decks.Variant]:
    yield decks.Variant("", source_of(path, helpers=sorted(_helpers(path))).code)


def _helpers(file: Path) -> set[Path]:
    """The files beside it that a source imports, and those that these import."""
    found: set[Path] = set()
    open_ = [file]
    while open_:
        one = open_.pop()
        try:
            text = one.read_text("utf-8")
        except (OSError, ValueError):
            continue  # which is said where the file is read as a problem
        for other in (path.resolve() for path in beside(text, one.parent)):
            if other not in found and other != file.resolve():
                found.add(other)
                open_.append(other)
    return found


def _separate(problems: tuple[SuiteProblem, ...]) -> tuple[SuiteProblem, ...]:
    """The problems as they are. Raises UsageError where one's directory would lie in another's."""
    ids = {problem.id for problem in problems}
    for id in sorted(ids):
        for parent in map(str, Path(id).parents):
            if parent in ids:
                raise UsageError(f"The run of {id} would lie inside that of {parent}: rename one of them.")
    return problems


def _missing_weights(problem: SuiteProblem) -> tuple[str, ...]:
    """The pretrained models that a problem loads and that do not lie on this disk."""
    if "from_pretrained" not in problem.code:
        return ()
    return tuple(name for name in _pretrained(problem.code) if not _on_disk(name))


def _pretrained(code: str) -> Iterator[str]:
    """The names of models in calls of `from_pretrained`, as far as they are constants of the source."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError):
        return
    constants = {
        node.targets[0].id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }
    seen: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "from_pretrained":
            match node.args[:1]:
                case [ast.Constant(value=str(name))]:
                    seen.add(name)
                case [ast.Name(id=name)] if name in constants:
                    seen.add(constants[name])
    yield from sorted(seen)


def _on_disk(name: str) -> bool:
    """Whether a model's configuration and weights lie in a folder of that name or in Hugging Face's cache."""
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE") or Path(home, "hub")).expanduser()
    snapshots = cache / f"models--{name.replace('/', '--')}" / "snapshots"
    folders = [Path(name), *(snapshots.iterdir() if snapshots.is_dir() else ())]
    return any(
        (folder / "config.json").exists() and any(one.suffix in WEIGHTS for one in folder.iterdir())
        for folder in folders
        if folder.is_dir()
    )


def _left_out(away: Mapping[str, tuple[str, ...]]) -> str:
    names = ", ".join(sorted({name for models in away.values() for name in models}))
    count = "1 problem is" if len(away) == 1 else f"{len(away)} problems are"
    return f"{count} left out, whose weights do not lie on this disk: {names}."
