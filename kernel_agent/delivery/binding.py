"""The same kernel bound by torch's own `load_inline`, so that a delivered file needs nothing but torch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files

from kernel_agent.errors import UsageError

PACKAGE, STANDIN = "tvm_ffi", "_ka_tvm_ffi"
KNOWN = {"tvm_ffi", "tvm_ffi.cpp", "tvm_ffi.cpp.load_inline"}
OPTIONS = {
    "name",
    "cpp_sources",
    "cuda_sources",
    "functions",
    "extra_cflags",
    "extra_cuda_cflags",
    "extra_ldflags",
    "extra_include_paths",
    "build_directory",
    "keep_module_alive",
}
"""Arguments of `load_inline` that mean the same, or nothing, in the other binding."""
TYPES = {"TensorView", "ShapeView"}
"""What there is of the namespace tvm::ffi."""
REMARKS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
USED = re.compile(r"\bffi\s*::\s*(\w+)|\b(TVM_?FFI\w+)")
NUMBERS = re.compile(r"std::(u?int(_\w+)?\d*_t|size_t|ptrdiff_t|byte)\b")


def bound(code: str) -> str:
    """`code` with each import of tvm_ffi replaced by the stand-in that delivered files carry.

    Raises UsageError, which names it, where the kernel uses of tvm_ffi what the stand-in does not have.
    """
    tree = ast.parse(code)
    for name in _missing(tree):
        raise UsageError(
            f"The kernel uses {name}, which torch's binding has no counterpart of: deliver it with --bind tvm_ffi."
        )
    lines = code.encode().split(b"\n")
    found = [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom) and _is_ours(n)]
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
        path = whole.replace(PACKAGE, STANDIN, 1)
        if isinstance(node, ast.Import) and not alias.asname:
            made.append(f"{PACKAGE} = {STANDIN}")
        else:
            made.append(f"{alias.asname or alias.name} = {path}")
    return made


def _missing(tree: ast.Module) -> Iterator[str]:
    """What the kernel uses of tvm_ffi and the stand-in lacks, in Python and in C++."""
    paths = dict(_imported(tree))
    yield from (path for path in paths.values() if path not in KNOWN)
    for node in ast.walk(tree):
        path = _path(node, paths)
        if path and path not in KNOWN:
            yield path
        if isinstance(node, ast.Call) and _path(node.func, paths) == "tvm_ffi.cpp.load_inline":
            yield from (f"`{word.arg}` of load_inline" for word in node.keywords if word.arg not in OPTIONS)
    for source in _sources(tree):
        yield from _missing_in_cpp(source)
    yield from _odd_signatures(tree)


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The names that imports of tvm_ffi bind, with what each stands for."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Import | ast.ImportFrom) or not _is_ours(node):
            continue
        for alias in node.names:
            whole = alias.name if isinstance(node, ast.Import) else f"{node.module}.{alias.name}"
            if whole.split(".")[0] != PACKAGE:
                continue
            if isinstance(node, ast.Import) and not alias.asname:
                yield PACKAGE, PACKAGE
                yield whole, whole
            else:
                yield alias.asname or alias.name, whole


def _path(node: ast.AST, paths: Mapping[str, str]) -> str | None:
    """The dotted path of a name or attribute that begins at an import of tvm_ffi."""
    match node:
        case ast.Name(id=name):
            return paths.get(name)
        case ast.Attribute(value=value, attr=attr) if (owner := _path(value, paths)) in ("tvm_ffi", "tvm_ffi.cpp"):
            return f"{owner}.{attr}"
    return None


def _sources(tree: ast.Module) -> list[str]:
    """The texts that may be C++, without remarks; what stands alone is documentation."""
    documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = [n for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return [REMARKS.sub(" ", str(n.value)) for n in texts if "(" in str(n.value) and id(n) not in documents]


def _missing_in_cpp(source: str) -> Iterator[str]:
    for type_, word in USED.findall(source):
        if type_ and type_ not in TYPES:
            yield f"tvm::ffi::{type_}"
        if word and word not in _words():
            yield word


def _odd_signatures(tree: ast.Module) -> Iterator[str]:
    """Functions that take or give a text or another object of C++, as far as their declarations say it."""
    named = [
        word.value for n in ast.walk(tree) if isinstance(n, ast.Call) for word in n.keywords if word.arg == "functions"
    ]
    names = {
        n.value for one in named for n in ast.walk(one) if isinstance(n, ast.Constant) and isinstance(n.value, str)
    }
    for source in _sources(tree):
        for name in sorted(names):
            found = re.search(rf"([^;{{}}()#]*)\b{re.escape(name)}\s*\(([^)]*)\)\s*\{{", source)
            words = NUMBERS.sub(" ", " ".join(found.groups())) if found else ""
            if odd := re.search(r"std::\w+|\bchar\b", words):
                yield f"{odd[0]} in the signature of `{name}`"


@cache
def _words() -> frozenset[str]:
    """The macros and functions of tvm_ffi that the carried text defines."""
    text = (files("kernel_agent.delivery") / "carried" / "binding.py").read_text("utf-8")
    pairs = re.findall(r"#define (TVM_FFI_\w+)|\b(TVMFFI\w+)\(", text)
    return frozenset(word for pair in pairs for word in pair if word)
