"""PyTorch source becomes a `Problem`. The source is only read as text: nothing here runs it or imports torch."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernel_agent.errors import THEIRS, ProblemError, shown
from kernel_agent.problem.python_source import Main, main_module, names, until_the_end
from kernel_agent.run.types import Problem

Shapes = Sequence[Sequence[int]]
InitInputs = Sequence[Any] | Mapping[str, Any]
"""A constructor's arguments: a list of them, a dict of keywords, or `[[...], {...}]` for both."""


def load_problem(
    code: str,
    name: str,
    target: str,
    input_shapes: Shapes | Sequence[Shapes] | None = None,
    init_inputs: InitInputs | None = None,
) -> Problem:
    """The problem that `code` states.

    KernelBench's form is taken as it is. Of any other source the one module that no other of its modules uses gets the
    name `Model` too; where functions are missing, its inputs are float32 normal values of `input_shapes`, one shape for
    each argument of `forward`, and `init_inputs` are the constructor's arguments (literals). A list of such lists gives
    several sets of shapes, all of which a kernel has to be right on. Raises ProblemError with one sentence where that
    cannot be done.
    """
    texts: dict[str, object] = {"code": code, "name": name}
    for what, given in texts.items():
        if not isinstance(given, str):
            raise ProblemError(f"`{what}` is text, not {shown(given)}.")
        if re.search("[\ud800-\udfff]", given):
            raise ProblemError(f"`{what}` holds half a character, which no file can: write it as an escape.")
    try:
        return _load(code.removeprefix("\ufeff"), name, target, input_shapes, init_inputs)
    except (RecursionError, MemoryError):
        raise ProblemError(f"{name} does not parse: an expression in it is nested too deeply.") from None


def _load(
    code: str,
    name: str,
    target: str,
    input_shapes: Shapes | Sequence[Shapes] | None,
    init_inputs: InitInputs | None,
) -> Problem:
    tree = _parse(code, name)
    has_inputs, has_init = (function in names(tree) for function in ("get_inputs", "get_init_inputs"))
    main = main_module(tree, name, has_inputs)
    if has_inputs and input_shapes is not None:
        raise ProblemError(f"{name} defines `get_inputs` itself; leave input_shapes out.")
    if has_init and init_inputs is not None:
        raise ProblemError(f"{name} defines `get_init_inputs` itself; leave init_inputs out.")
    source = until_the_end(code, tree)
    parts = [source.rstrip("\n") + "\n"]
    if not has_inputs:
        parts.append(_get_inputs(main, name, input_shapes, has_init or init_inputs is not None))
    if not has_init:
        parts.append(_get_init_inputs(main, init_inputs))
    if main.name != "Model":
        others = f"  # the last that no other one uses, after {', '.join(main.others)}" if main.others else ""
        parts.append(f"Model = {main.name}{others}\n")
    return Problem(name, "\n\n".join(parts) if len(parts) > 1 else source, target)


def _parse(code: str, name: str) -> ast.Module:
    try:
        return ast.parse(code)
    except SyntaxError as error:
        where = f" in line {error.lineno}" if error.lineno else ""
        raise ProblemError(f"{name} does not parse: {error.msg}{where}.") from None
    except ValueError as error:
        raise ProblemError(f"{name} does not parse: {error}.") from None


def _get_inputs(main: Main, name: str, shapes: Shapes | Sequence[Shapes] | None, is_made: bool) -> str:
    if shapes is None:
        takes, needs = (_needed(main, method) for method in ("forward", "__init__"))
        inputs = f"one for each input of `{main.name}.forward`{f' ({takes})' if takes else ''}"
        also = f"; `{main.name}` is made with {needs}: add `get_init_inputs` too" if needs and not is_made else ""
        raise ProblemError(f"{name} defines no `get_inputs`: add it, or give input_shapes, {inputs}{also}.")
    sets = list(shapes) if _nested(shapes) else [shapes]
    functions = []
    for number, one in enumerate(sets, 1):
        if not isinstance(one, (list, tuple)) or not all(_is_shape(shape) for shape in one):
            raise ProblemError(f"input_shapes is a list of shapes such as [(16, 1024), (1024,)], not {shown(one)}.")
        drawn = [f"torch.randn({tuple(shape)!r})" for shape in one]
        keywords = _match(main, "forward", len(one), "input_shapes")
        places = len(one) - len(keywords)
        keyed = ", ".join(f"{key!r}: {value}" for key, value in zip(keywords, drawn[places:], strict=True))
        inputs = f"[{', '.join(drawn[:places])}]"
        suffix = "" if number == 1 else f"_{number}"
        functions.append(f"def get_inputs{suffix}():\n    return {f'[{inputs}, {{{keyed}}}]' if keyed else inputs}\n")
    return "\n\n".join(["import torch  # noqa: E402\n", *functions])


def _nested(shapes: object) -> bool:
    """Whether these are several sets of shapes."""
    rows = [one for one in shapes if isinstance(one, (list, tuple))] if isinstance(shapes, (list, tuple)) else []
    return bool(rows) and all(one and all(isinstance(shape, (list, tuple)) for shape in one) for one in rows)


def _is_shape(shape: object) -> bool:
    return isinstance(shape, (list, tuple)) and all(_is_size(size) for size in shape)


def _is_size(size: object) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and size >= 0


def _get_init_inputs(main: Main, values: InitInputs | None) -> str:
    plain = values is None or isinstance(values, (list, tuple, Mapping))
    given: Any = dict(values) if isinstance(values, Mapping) else list(values or ()) if plain else []
    try:
        literal = bool(ast.literal_eval(repr(given)) == given)
    except (SyntaxError, *THEIRS):
        literal = False
    if not plain or not literal:
        raise ProblemError(f"init_inputs is a list of numbers, strings, lists and the like, not {shown(values)}.")
    if isinstance(given, list) and not any(
        isinstance(one, Mapping) for one in given
    ):  # keywords are left to the server
        _match(main, "__init__", len(given), "init_inputs")
    return f"def get_init_inputs():\n    return {given!r}\n"


@dataclass(frozen=True, slots=True)
class _Takes:
    """What a method of a module takes: names that it has to be given, those that have a default, and keywords that it
    has to be given; `more` where any number may follow."""

    needed: list[str]
    optional: list[str]
    keywords: list[str]
    line: int
    more: bool

    def fits(self, by_place: int) -> bool:
        return len(self.needed) <= by_place and (self.more or by_place <= len(self.needed) + len(self.optional))

    def __str__(self) -> str:
        needed = ", ".join(self.needed + self.keywords) or "no arguments"
        return f"{needed} (and may be given {', '.join(self.optional)})" if self.optional else needed


def _takes(main: Main, method: str) -> _Takes | None:
    """None for a method that the module inherits: its calls are taken on trust."""
    body = main.node.body if main.node else []
    own = next((node for node in body if isinstance(node, ast.FunctionDef) and node.name == method), None)
    if own is None:
        return None
    places = [argument.arg for argument in (*own.args.posonlyargs, *own.args.args)][1:]
    least = len(places) - len(own.args.defaults)
    keywords = [a.arg for a, default in zip(own.args.kwonlyargs, own.args.kw_defaults, strict=True) if default is None]
    return _Takes(places[:least], places[least:], keywords, own.lineno, own.args.vararg is not None)


def _needed(main: Main, method: str) -> str:
    takes = _takes(main, method)
    return ", ".join(takes.needed + takes.keywords) if takes else ""


def _match(main: Main, method: str, given: int, setting: str) -> list[str]:
    """Check that the method can be called with so many arguments, and say which of the last ones go by keyword."""
    takes = _takes(main, method)
    if takes is None or main.node is None:
        return []
    if not takes.fits(given - len(takes.keywords)):
        instead = "; `get_init_inputs` can give them" if method == "__init__" else ""
        raise ProblemError(
            f"`{main.node.name}.{method}` (line {takes.line}) takes {takes}, but {setting} gives {given}{instead}."
        )
    return takes.keywords
