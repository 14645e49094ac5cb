"""The tree of tensors that a candidate's process says lies in shared memory, held against that memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from ncu_server.sandbox.child import Child, ChildDied
from ncu_server.sandbox.shared_memory import Shared, Spec

WIDEST = 16  # bytes of an element: no tensor begins elsewhere


def require_tree(child: Child, spec: Spec, memory: Shared) -> None:
    """Freeze the memory's size. Raises ChildDied where it does not hold what the child says lies there."""
    if fault := tree_fault(spec, memory.freeze()):
        raise ChildDied(child, f"the process answered nonsense: {fault}")


def require_form(child: Child, spec: Spec) -> None:
    """Raises ChildDied where what the child says is no tree of tensors, wherever that may lie."""
    if fault := tree_fault(spec, sys.maxsize):
        raise ChildDied(child, f"the process answered nonsense: {fault}")


def tree_fault(spec: Spec, size: int) -> str | None:
    """Why a spec is none of a tree in `size` bytes; None where it may be."""
    try:
        numbers = list(_numbers(spec["structure"]))
    except ValueError as fault:
        return str(fault)
    if numbers != list(range(len(spec["tensors"]))):
        return "the tree does not number its tensors"
    if any(place["offset"] < 0 or place["offset"] % WIDEST or place["bytes"] < 0 for place in spec["tensors"]):
        return "a tensor begins where none can"
    end = max([spec["bytes"], *(place["offset"] + place["bytes"] for place in spec["tensors"])])
    return f"{end} bytes are said to lie in {size}" if spec["bytes"] <= 0 or end > size else None


def _numbers(structure: Any) -> Iterator[int]:
    """The numbers of the tensors in a tree, in order. Raises ValueError for what is no tree."""
    waiting = [structure]
    while waiting:
        match waiting.pop():
            case {"tensor": int(number), **rest} if not rest:
                yield number
            case {"list": [*inner], **rest} | {"tuple": [*inner], **rest} if not rest:
                waiting += reversed(inner)
            case {"dict": [*entries], **rest} if not rest and all(_keyed(entry) for entry in entries):
                waiting += [inner for _, inner in reversed(entries)]
            case {"record": [str(), str(), [*fields]], **rest} if not rest and all(_named(field) for field in fields):
                waiting += [inner for _, inner in reversed(fields)]
            case {"value": None | bool() | int() | float() | str(), **rest} | {"dtype": str(), **rest} if not rest:
                pass
            case {"complex": [int() | float(), int() | float()], **rest} if not rest:
                pass
            case _:
                raise ValueError("a part of the tree is none")


def _keyed(entry: Any) -> bool:
    return isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], None | bool | int | float | str)


def _named(field: Any) -> bool:
    return isinstance(field, list) and len(field) == 2 and isinstance(field[0], str)
