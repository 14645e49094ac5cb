"""PyTorch source becomes a `Problem`. The source is only read as text: nothing here runs it or imports torch."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kernel_agent.errors import THEIRS, ProblemError, shown
from kernel_agent.types import Problem

Shapes = Sequence[Sequence[int]]
FORM = "define `Model` (a torch.nn.Module), `get_inputs` and `get_init_inputs`"


def load_problem(
    code: str,
    name: str,
    target: str,
    input_shapes: Shapes | Sequence[Shapes] | None = None,
    init_inputs: Sequence[Any] | None = None,
) -> Problem:
    """The problem that `code` states.

    KernelBench's form is taken as it is. Of any other source the one module, whatever its name, becomes `Model`; its
    inputs are float32 normal values of `input_shapes`, one shape for each argument of `forward`, and `init_inputs` are
    the constructor's arguments (literals). A list of such lists gives several sets of shapes, all of which a kernel has
    to be right on. Raises ProblemError with one sentence where that cannot be done.
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
    init_inputs: Sequence[Any] | None,
) -> Problem:
    tree = _parse(code, name)
    module = _module(tree, name)
    has_inputs, has_init = (_defined(tree, function) for function in ("get_inputs", "get_init_inputs"))
    if has_inputs and input_shapes is not None:
        raise ProblemError(f"{name} defines `get_inputs` itself; leave input_shapes out.")
    if has_init and init_inputs is not None:
        raise ProblemError(f"{name} defines `get_init_inputs` itself; leave init_inputs out.")
    source = code if module.name == "Model" else _rename(code, tree, module, name)
    parts = [source.rstrip("\n") + "\n"]
    if not has_inputs:
        parts.append(_get_inputs(module, name, input_shapes))
    if not has_init:
        parts.append(_get_init_inputs(module, name, init_inputs))
    return Problem(name, "\n\n".join(parts) if len(parts) > 1 else code, target)


def _parse(code: str, name: str) -> ast.Module:
    try:
        return ast.parse(code)
    except SyntaxError as error:
        where = f" in line {error.lineno}" if error.lineno else ""
        raise ProblemError(f"{name} does not parse: {error.msg}{where}.") from None
    except ValueError as error:
        raise ProblemError(f"{name} does not parse: {error}.") from None


def _module(tree: ast.Module, name: str) -> ast.ClassDef:
    modules: dict[str, ast.ClassDef] = {}
    known = {"nn": "torch.nn", "Module": "torch.nn.Module"}
    for node in tree.body:
        known.update(_bound(node, known))
        if isinstance(node, ast.ClassDef) and any(_is_module(base, modules, known) for base in node.bases):
            modules[node.name] = node
    if "Model" in modules:
        return modules["Model"]
    if not modules:
        raise ProblemError(f"{name} holds no `Model`, and no other torch.nn.Module at its top level: {FORM}.")
    if len(modules) > 1:
        found = ", ".join(f"`{m.name}` (line {m.lineno})" for m in modules.values())
        raise ProblemError(f"{name} holds several modules, {found}, and none is called `Model`: rename the main one.")
    return next(iter(modules.values()))


def _bound(node: ast.stmt, known: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The other names that a statement gives to torch and what is in it."""
    match node:
        case ast.Import(names=names):
            yield from ((alias.asname, alias.name) for alias in names if alias.asname)
        case ast.ImportFrom(module=str(module), names=names):
            yield from ((alias.asname or alias.name, f"{module}.{alias.name}") for alias in names)
        case ast.Assign(targets=targets, value=ast.Name() | ast.Attribute() as value):
            yield from ((target.id, _whole(value, known)) for target in targets if isinstance(target, ast.Name))


def _is_module(base: ast.expr, modules: Mapping[str, ast.ClassDef], known: Mapping[str, str]) -> bool:
    whole = _whole(base, known)
    return whole in modules or whole.startswith("torch.nn.")


def _whole(name: ast.expr, known: Mapping[str, str]) -> str:
    """A dotted name with what its first part stands for."""
    first, dot, rest = ast.unparse(name).partition(".")
    return f"{known.get(first, first)}{dot}{rest}"


def _defined(tree: ast.Module, function: str) -> bool:
    return function in _names(tree)


def _names(tree: ast.Module) -> Iterator[str]:
    """The names that the source binds at its top level."""
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (alias.asname or alias.name for alias in names)
            case ast.Assign(targets=targets):
                yield from (t.id for t in targets if isinstance(t, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name


def _rename(code: str, tree: ast.Module, module: ast.ClassDef, name: str) -> str:
    """The source with the module's name, wherever it stands as a name of its own, replaced by `Model`."""
    if "Model" in _names(tree):
        raise ProblemError(f"{name} uses the name `Model` for something else than a module: rename that.")
    lines = code.split("\n")
    previous = ""
    places: list[tuple[int, int]] = []
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.NAME and token.string == module.name and previous != ".":
            places.append(token.start)
        previous = token.string
    for row, column in reversed(places):
        line = lines[row - 1]
        lines[row - 1] = line[:column] + "Model" + line[column + len(module.name) :]
    return "\n".join(lines)


def _get_inputs(module: ast.ClassDef, name: str, shapes: Shapes | Sequence[Shapes] | None) -> str:
    if shapes is None:
        raise ProblemError(
            f"{name} defines no `get_inputs`: add it, or give input_shapes, one for each input of forward."
        )
    sets = list(shapes) if _nested(shapes) else [shapes]
    functions = []
    for number, one in enumerate(sets, 1):
        if not isinstance(one, (list, tuple)) or not all(_is_shape(shape) for shape in one):
            raise ProblemError(f"input_shapes is a list of shapes such as [(16, 1024), (1024,)], not {shown(one)}.")
        _match(module, "forward", len(one), "input_shapes")
        inputs = ", ".join(f"torch.randn({tuple(shape)!r})" for shape in one)
        suffix = "" if number == 1 else f"_{number}"
        functions.append(f"def get_inputs{suffix}():\n    return [{inputs}]\n")
    return "\n\n".join(["import torch  # noqa: E402\n", *functions])


def _nested(shapes: object) -> bool:
    """Whether these are several sets of shapes."""
    rows = [one for one in shapes if isinstance(one, (list, tuple))] if isinstance(shapes, (list, tuple)) else []
    return bool(rows) and all(one and all(isinstance(shape, (list, tuple)) for shape in one) for one in rows)


def _is_shape(shape: object) -> bool:
    return isinstance(shape, (list, tuple)) and all(_is_size(size) for size in shape)


def _is_size(size: object) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and size >= 0


def _get_init_inputs(module: ast.ClassDef, name: str, values: Sequence[Any] | None) -> str:
    listed = values is None or isinstance(values, (list, tuple))
    given = list(values or ()) if listed else []
    try:
        literal = bool(ast.literal_eval(repr(given)) == given)
    except (SyntaxError, *THEIRS):
        literal = False
    if not listed or not literal:
        raise ProblemError(f"init_inputs is a list of numbers, strings, lists and the like, not {shown(values)}.")
    _match(module, "__init__", len(given), "init_inputs")
    return f"def get_init_inputs():\n    return {given!r}\n"


def _match(module: ast.ClassDef, method: str, given: int, setting: str) -> None:
    """Check that the method can be called with so many arguments; a method it inherits is taken on trust."""
    own = next((node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == method), None)
    if own is None:
        return
    arguments = [*own.args.posonlyargs, *own.args.args][1:]
    least = len(arguments) - len(own.args.defaults)
    if given < least or (given > len(arguments) and own.args.vararg is None):
        wanted = ", ".join(argument.arg for argument in arguments) or "no arguments"
        instead = "; `get_init_inputs` can give them" if method == "__init__" else ""
        raise ProblemError(
            f"`{module.name}.{method}` (line {own.lineno}) takes {wanted}, but {setting} gives {given}{instead}."
        )
