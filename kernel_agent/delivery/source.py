"""The kernel's source as a part of the delivered file: without imports that have to stand first, and under a `with`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

Span = tuple[int, int, int, int]
"""The first row (from 0) and the byte in it, the last row and the byte behind it."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


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
    """`code` with its statements in blocks below `head`, a `with` line.

    Functions stay where they are: they run nothing now, and Triton reads their text by its first column.
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
    """The first and the last row of each stretch of statements that are no functions."""
    first = last = None
    for node in tree.body:
        if isinstance(node, FUNCTIONS):
            if first is not None and last is not None:
                yield first, last
            first = last = None
            continue
        decorators = [one.lineno for one in getattr(node, "decorator_list", ())]
        first = min([node.lineno, *decorators]) - 1 if first is None else first
        last = (node.end_lineno or node.lineno) - 1
    if first is not None and last is not None:
        yield first, last


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
