"""Python source that a model wrote: whether it parses, what it defines, what it reads without defining it."""

from __future__ import annotations

import ast
import builtins
import codeop
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from kernel_agent.replies.text import variants

BUILT_IN = frozenset(dir(builtins)) | {"__file__", "__name__", "__doc__"}


@dataclass(frozen=True, slots=True)
class Parsed:
    """A source and its tree."""

    code: str
    tree: ast.Module


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a source does not parse, and at which of its rows; `open` says that it only ends too early."""

    row: int
    reason: str
    open: bool


def parsed(code: str) -> Parsed | Fault:
    """The first reading of the code that parses, else what is wrong with it as it stands."""
    fault: Fault | None = None
    for variant in variants(code):
        found = _tree(variant)
        if isinstance(found, ast.Module):
            return Parsed(variant, found)
        fault = fault or found
    assert fault is not None, "a code has at least one variant"
    return fault


def _tree(code: str) -> ast.Module | Fault:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an odd escape in a model's string is its own affair
            return ast.parse(code)
    except SyntaxError as error:
        row = error.lineno or 1
        return Fault(row, error.msg, row >= len(code.rstrip().split("\n")) or _ends_early(code))
    except (ValueError, RecursionError, MemoryError) as error:
        return Fault(1, str(error) or "nested too deep", False)


def _ends_early(code: str) -> bool:
    """Whether more text could complete it."""
    try:
        return codeop.compile_command(code, symbol="exec") is None
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
        return False


def returns(module: ast.stmt) -> bool:
    """Whether a class that the module defines is there to its end, as far as `forward` says: it returns something."""
    if not isinstance(module, ast.ClassDef):
        return True
    forward = [node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == "forward"]
    return bool(forward) and any(isinstance(node, ast.Return) for node in ast.walk(forward[-1]))


def bound(tree: ast.AST) -> set[str]:
    """Every name that is given a meaning anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
                names.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                names.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names |= {(alias.asname or alias.name).partition(".")[0] for alias in aliases}
    return names


def unbound(tree: ast.Module) -> list[str]:
    """The names that it reads and nothing in it defines, in the order of their first use."""
    if any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in ast.walk(tree)):
        return []
    known = bound(tree) | BUILT_IN
    read = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id not in known]
    return list(dict.fromkeys(node.id for node in sorted(read, key=lambda node: (node.lineno, node.col_offset))))


def defined(tree: ast.Module) -> dict[str, ast.stmt]:
    """The names that the module binds when it is imported, by the last statement that does."""
    return {name: node for node in _top(tree.body) for name in _bound_by(node)}


def _top(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            for field in ("body", "orelse", "finalbody"):
                yield from _top(getattr(node, field, []))
            for handler in getattr(node, "handlers", []):
                yield from _top(handler.body)


def _bound_by(node: ast.stmt) -> set[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Assign(targets=targets):
            return {target.id for target in targets if isinstance(target, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
            return {name}
        case ast.Import() | ast.ImportFrom():
            return bound(node)
    return set()
