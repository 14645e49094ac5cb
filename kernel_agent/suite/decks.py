"""Problems that lie in a folder of their own: decks as kernelbench.com has them, and the tasks of robust-kbench.

Either is written into KernelBench's form. Their files are read as text and data alone; nothing of them runs here.
"""

from __future__ import annotations

import ast
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kernel_agent.errors import ProblemError
from kernel_agent.problem.from_python import source_of
from kernel_agent.problem.python_source import names

REFERENCE, SHAPES, ABOUT = "reference.py", "shapes.py", "problem.yaml"
TASK, BACKWARD, CONFIG, FILTERS = "func_forward.py", "func_backward.py", "config_forward.json", "filter_results.json"

DEGENERATE = {
    "filter_output_range": "its outputs all lie within 0.01 of zero",
    "filter_output_std": "its outputs are alike whatever its inputs and weights are",
    "filter_output_axes": "its outputs are alike along an axis",
    "filter_init_impact": "its weights do not show in its outputs",
    "filter_input_impact": "its inputs do not show in its outputs",
    "filter_llm_sanity": "a model found work in it that is redundant or slow without need",
    "filter_llm_redundancy": "a model found work in it that is redundant",
    "filter_llm_inefficiency": "a model found work in it that is slow without need",
}
"""What robust-kbench's filters say of a task that they caught."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One problem of a folder: what its name ends on (nothing where it is the only one), source, notes."""

    suffix: str
    code: str
    notes: tuple[str, ...] = ()


def is_deck(folder: Path) -> bool:
    """Whether the folder is one problem of a deck."""
    return (folder / REFERENCE).is_file()


def is_task(folder: Path) -> bool:
    """Whether the folder is one task of robust-kbench."""
    return (folder / TASK).is_file()


def deck(folder: Path) -> Iterator[Variant]:
    """The problems of a deck's folder, one for each of its shapes: a shape changes what the module is made with.

    Raises ProblemError with one sentence.
    """
    code = source_of(folder / REFERENCE, folder.name).code
    notes = _about(folder / ABOUT)
    if not (folder / SHAPES).is_file():
        yield Variant("", code, notes)
        return
    known = names(ast.parse(code))
    shapes = _shapes(folder / SHAPES)
    for number, shape in enumerate(shapes, 1):
        values = {_global(name, known, folder): value for name, value in shape.items()}
        sizes = ", ".join(f"{name} {value}" for name, value in shape.items())
        rows = "".join(f"{name} = {value!r}\n" for name, value in values.items())
        yield Variant(f"shape_{number}", f"{code.rstrip()}\n\n\n{rows}", (f"shape {number}: {sizes}", *notes))


def _global(name: str, known: set[str], folder: Path) -> str:
    """The reference's own name for what a shape sets."""
    for one in (name, name.upper(), name.lower()):
        if one in known:
            return one
    raise ProblemError(f"{folder / SHAPES} sets `{name}`, and {folder / REFERENCE} has no such value.")


def _shapes(file: Path) -> list[dict[str, Any]]:
    """What `SHAPES` holds, with the file's own constants in it."""
    tree = ast.parse(source_of(file).code)
    found: dict[str, Any] = {}

    class Constants(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return ast.Constant(found[node.id]) if node.id in found else node

    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                found[node.targets[0].id] = ast.literal_eval(Constants().visit(node.value))
            except ValueError:
                continue  # no plain value
    shapes = found.get("SHAPES")
    if not isinstance(shapes, list) or not shapes or not all(isinstance(one, dict) for one in shapes):
        raise ProblemError(f"{file} has no list `SHAPES` of sizes by their names.")
    return shapes


def _about(file: Path) -> tuple[str, ...]:
    """What a deck's `problem.yaml` says that a table can use: title, precision, what its own judge allows."""
    if not file.is_file():
        return ()
    try:
        about = yaml.safe_load(source_of(str(file.read_text("utf-8")) + "\n", file.name).code)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ProblemError(f"{file} cannot be read ({' '.join(str(error).split())[:100]}).") from None
    if not isinstance(about, Mapping):
        return ()
    tolerance = about.get("tolerance")
    allowed = ", ".join(f"{name} {value}" for name, value in tolerance.items()) if isinstance(tolerance, dict) else ""
    sota = about.get("sota")
    rows = (
        about.get("display_name"),
        f"precision {about['precision']}" if "precision" in about else None,
        f"its own judge allows {allowed}" if allowed else None,
        f"beside it stands {sota['name']}" if isinstance(sota, dict) and sota.get("name") else None,
    )
    return tuple(str(row) for row in rows if row)


def task(folder: Path) -> Iterator[Variant]:
    """The problems of a robust-kbench task: its `single` configurations, with a note where it is degenerate.

    Raises ProblemError with one sentence.
    """
    code = source_of(folder / TASK, folder.name).code
    notes = _degenerate(folder / FILTERS)
    configs = _json(folder / CONFIG)
    parts = [configs.get(f"single_{part}_configs") or [{}] for part in ("init", "input", "shared")]
    if not all(isinstance(part, list) and all(isinstance(one, dict) for one in part) for part in parts):
        raise ProblemError(f"{folder / CONFIG} has no lists of configurations, as robust-kbench writes them.")
    every = list(itertools.product(*parts))
    for number, (init, inputs, shared) in enumerate(every, 1):
        suffix = f"config_{number}" if len(every) > 1 else ""
        yield Variant(suffix, _configured(code, init | shared, inputs | shared), notes)


def _configured(code: str, init: dict[str, Any], inputs: dict[str, Any]) -> str:
    """A task in KernelBench's form: of the values that are shared each function takes those that it knows."""
    tree = ast.parse(code)
    made = {name: value for name, value in init.items() if name in _arguments(tree, "__init__", "Model")}
    drawn = {name: value for name, value in inputs.items() if name in _arguments(tree, "get_inputs")}
    given = ", ".join(f"{name}={value!r}" for name, value in drawn.items())
    return (
        f"{code.rstrip()}\n\n\n_configured_inputs = get_inputs\n\n\n"
        f"def get_inputs():\n    return _configured_inputs({given})\n\n\n"
        f"def get_init_inputs():\n    return {made!r}\n"
    )


def _arguments(tree: ast.Module, function: str, inside: str | None = None) -> set[str]:
    body = tree.body
    if inside:
        body = [part for node in body if isinstance(node, ast.ClassDef) and node.name == inside for part in node.body]
    found = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == function]
    return {one.arg for node in found for one in (*node.args.args, *node.args.kwonlyargs)}


def _degenerate(file: Path) -> tuple[str, ...]:
    caught = _json(file) if file.is_file() else {}
    why = [words for name, words in DEGENERATE.items() if caught.get(name) is True]
    return (f"degenerate by robust-kbench: {', '.join(why)}",) if why else ()


def _json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        raise ProblemError(f"There is no file {file}.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ProblemError(f"{file} cannot be read ({error}).") from None
    if not isinstance(found, dict):
        raise ProblemError(f"{file} holds no JSON object.")
    return found
