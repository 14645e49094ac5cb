"""Reads a candidate's source. Only what can never be honest is rejected; the rest are leads that the verdict lists."""

from __future__ import annotations

import ast
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reading:
    """What reading the source gave: a reason to reject, a fault of syntax, or leads to look at."""

    rejected: str | None = None
    syntax: str | None = None
    leads: tuple[str, ...] = ()


# Attribute or function names that deserve a look, and why. Honest code may use any of them.
LEADS = {
    "_getframe": "walks the call stack",
    "get_objects": "scans the garbage collector's objects",
    "allclose": "compares outputs or patches the comparison",
    "elapsed_time": "touches event timing",
    "set_num_threads": "changes the process's thread count",
    "data_ptr": "handles raw addresses",
    "lru_cache": "remembers results between calls",
}
BUILDERS = {"load_inline", "load", "build_inline", "build", "jit", "compile"}


def read(source: str) -> Reading:
    """Parse and read one candidate module."""
    try:
        tree = ast.parse(source)
    except SyntaxError as fault:
        return Reading(syntax=f"line {fault.lineno}: {fault.msg}")
    classes = {n.name for n in tree.body if isinstance(n, ast.ClassDef)}
    names = {t.id for n in tree.body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)}
    if "ModelNew" not in classes | names:
        return Reading(rejected="the module defines no `ModelNew`")
    used = _names(tree)
    if not used & BUILDERS:
        return Reading(
            rejected="the module builds no kernel of its own: neither a load_inline call nor a Triton kernel is in it"
        )
    leads = tuple(f"`{name}`: {why}" for name, why in LEADS.items() if name in used)
    return Reading(leads=leads)


def _names(tree: ast.Module) -> set[str]:
    """Every name that the source reads: variables, attributes, and what it imports, under the original name."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                found.add(name)
            case ast.ImportFrom(names=aliases):
                found |= {a.name for a in aliases}
    return found
