"""The same kernel bound by torch's own `load_inline`, so that a delivered file needs nothing but torch."""

from __future__ import annotations

import ast

from kernel_agent.errors import UsageError

PACKAGE, STANDIN = "tvm_ffi", "_ka_tvm_ffi"
KNOWN = {"tvm_ffi", "tvm_ffi.cpp", "tvm_ffi.cpp.load_inline"}


def bound(code: str) -> str:
    """`code` with each import of tvm_ffi replaced by the stand-in that delivered files carry.

    Raises UsageError where it imports more of tvm_ffi than `load_inline`.
    """
    lines = code.encode().split(b"\n")
    found = [n for n in ast.walk(ast.parse(code)) if isinstance(n, ast.Import | ast.ImportFrom) and _is_ours(n)]
    for node in sorted(found, key=lambda n: (n.lineno, n.col_offset), reverse=True):
        end = node.end_lineno or node.lineno
        head, tail = lines[node.lineno - 1][: node.col_offset], lines[end - 1][node.end_col_offset or 0 :]
        lines[node.lineno - 1 : end] = [head + "; ".join(_replaced(node)).encode() + tail]
    return b"\n".join(lines).decode()


def _is_ours(node: ast.Import | ast.ImportFrom) -> bool:
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").split(".")[0] == PACKAGE and not node.level
    return any(alias.name.split(".")[0] == PACKAGE for alias in node.names)


def _replaced(node: ast.Import | ast.ImportFrom) -> list[str]:
    made = []
    for alias in node.names:
        whole = alias.name if isinstance(node, ast.Import) else f"{node.module}.{alias.name}"
        if whole.split(".")[0] != PACKAGE:
            made.append(f"import {alias.name}" + (f" as {alias.asname}" if alias.asname else ""))
            continue
        if whole not in KNOWN:
            raise UsageError(
                f"The kernel imports {whole}, which torch's binding has no counterpart of: keep tvm_ffi's."
            )
        path = whole.replace(PACKAGE, STANDIN, 1)
        if isinstance(node, ast.Import) and not alias.asname:
            made.append(f"{PACKAGE} = {STANDIN}")
        else:
            made.append(f"{alias.asname or alias.name} = {path}")
    return made
