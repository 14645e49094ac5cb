"""The kernel's source in the delivered file: without imports that have to stand first, its build under a `with`."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from itertools import groupby

Span = tuple[int, int, int, int]
"""The first row (from 0) and the byte in it, the last row and the byte behind it."""


def without_future(code: str) -> str:
    """`code` with the same meaning where lines stand before it, as other judges put them there.

    Of what `__future__` offers only `annotations` still changes anything: annotations are then their own source as
    text, so they are written as that. The import itself goes.
    """
    tree = ast.parse(code)
    imports = [n for n in tree.body if isinstance(n, ast.ImportFrom) and n.module == "__future__"]
    edits = [(_span(node), "") for node in imports]
    if any(alias.name == "annotations" for node in imports for alias in node.names):
        edits += [(_span(node), repr(ast.unparse(node))) for node in _annotations(tree)]
    return _edited(code, edits)


def _annotations(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        match node:
            case ast.arg(annotation=ast.expr() as found) | ast.AnnAssign(annotation=found):
                yield found
            case ast.FunctionDef(returns=ast.expr() as found) | ast.AsyncFunctionDef(returns=ast.expr() as found):
                yield found


def within(code: str, head: str) -> str:
    """`code` with the statements that run something, such as the build, in blocks below `head`, a `with` line.

    All that only defines stays as it was written: what it does does not hang on the environment.
    """
    lines, tree = code.encode().split(b"\n"), ast.parse(code)
    texts = set(_rows_in_texts(tree))
    for first, last in reversed(list(_blocks(tree))):
        for row in range(first, last + 1):
            if row not in texts and lines[row].strip():
                lines[row] = b"    " + lines[row].lstrip(b"\f")
        lines.insert(first, head.encode())
    return b"\n".join(lines).decode()


def _blocks(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """The first and the last row of each stretch of statements that run something; what shares a row stays together."""
    lumps: list[tuple[int, int, bool]] = []
    for node in tree.body:
        decorators = [one.lineno for one in getattr(node, "decorator_list", ())]
        first, last, runs = min([node.lineno, *decorators]) - 1, (node.end_lineno or node.lineno) - 1, _runs(node)
        if lumps and first <= lumps[-1][1]:
            first, _, also = lumps.pop()
            runs = runs or also
        lumps.append((first, last, runs))
    for runs, stretch in groupby(lumps, lambda lump: lump[2]):
        if runs:
            rows = list(stretch)
            yield rows[0][0], rows[-1][1]


def _runs(node: ast.AST) -> bool:
    """Whether what a node does may hang on the environment or the command line: calls, subscripts, imports of packages.

    Functions only define, and Triton reads their text by its first column.
    """
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
            return False
        case ast.Call() | ast.Subscript() | ast.Attribute(attr="argv") | ast.ImportFrom(module="sys"):
            return True
        case ast.Import(names=aliases):
            return not all(_is_loaded(alias.name) for alias in aliases)
        case ast.ImportFrom(module=module):
            return not _is_loaded(module or "")
        case ast.AnnAssign(target=target, value=value):
            return _runs(target) or (value is not None and _runs(value))
        case ast.ClassDef(decorator_list=decorators, keywords=keywords, body=body):
            return bool(decorators or keywords) or any(map(_runs, body))
    return any(map(_runs, ast.iter_child_nodes(node)))


def _is_loaded(module: str) -> bool:
    """Whether an import finds the module loaded, or one that asks nothing; torch.utils looks for CUDA's compiler."""
    package = module.partition(".")[0]
    return package in sys.stdlib_module_names or (package == "torch" and not module.startswith("torch.utils"))


def _rows_in_texts(tree: ast.Module) -> Iterator[int]:
    """The rows that begin within a string, whose blanks are part of it."""
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
        if is_text or type(node).__name__ in ("JoinedStr", "TemplateStr"):
            yield from range(node.lineno, node.end_lineno or node.lineno)  # type: ignore[attr-defined]


def _span(node: ast.stmt | ast.expr) -> Span:
    end = node.end_lineno or node.lineno
    return node.lineno - 1, node.col_offset, end - 1, node.end_col_offset or node.col_offset


def _edited(code: str, edits: list[tuple[Span, str]]) -> str:
    """`code` with each span replaced; one that becomes empty takes the `;` behind it along."""
    lines = code.encode().split(b"\n")
    for (first, start, last, end), text in sorted(edits, reverse=True):
        tail = lines[last][end:] if text else lines[last][end:].lstrip(b" \t;")
        lines[first : last + 1] = [lines[first][:start] + text.encode() + tail]
    return b"\n".join(lines).decode()
