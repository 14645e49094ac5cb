"""What a delivered kernel was verified to be called with, and what it gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from kernel_agent.run.types import JSON, Description

Form = Any
"""A structure as JSON: None is a leaf, else `["list" | "tuple", [...]]` or `["dict" | "record", {...}]`."""

PLAIN = {"float": "float", "int": "int", "bool": "bool", "str": "str"}
"""Types of an operator's schema by the kind of a leaf."""

OPAQUE = ("tensor", "none", "enum", "dtype", "device", "complex", "function", "type", *PLAIN)
"""Kinds of leaves that hold no tensor. Any other one is a record whose fields an older server did not list."""


@dataclass(frozen=True, slots=True)
class InputTensor:
    """A tensor among the inputs: its shape, its dtype (`float32`) and its strides in elements."""

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OutputTensor:
    """A tensor among the outputs, or a parameter or buffer."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Call:
    """One of the problem's input sets: the tensors that go in and those that come out, in order."""

    takes: tuple[InputTensor, ...]
    gives: tuple[OutputTensor, ...]
    held: tuple[tuple[Any] | None, ...] = ()
    """The value of each input that no check varied, None for others; empty in runs of before."""
    leaves: tuple[str, ...] = ()
    """The kinds of the inputs in order (`tensor`, `float`, `none`, ...); empty in runs of before."""
    form: Form = None
    """The structure of (arguments, keywords)."""


@dataclass(frozen=True, slots=True)
class Contract:
    """All calls that were verified. `leaves` are the kinds of the inputs in order (`tensor`, `float`, `none`, ...).

    `form` is the structure of (arguments, keywords), `returns` that of the outputs; `is_plain` says whether both are of
    lists, tuples and dicts of tensors alone. `changes`: a call changes its inputs or buffers. `made` are the
    constructor's arguments, by position and by keyword, where they are literals; `mode` is whether the model trains,
    None where that changes nothing.
    """

    calls: tuple[Call, ...] = ()
    leaves: tuple[str, ...] = ()
    form: Form = None
    returns: Form = None
    is_plain: bool = False
    parameters: Mapping[str, OutputTensor] | None = None
    changes: bool = False
    made: tuple[list[Any], dict[str, Any]] | None = None
    mode: bool | None = None

    @property
    def why_not_compiled(self) -> str | None:
        """Why no operator can stand for a call under torch.compile; None where one can."""
        if not self.calls:
            return "the run did not record what the kernel is called with"
        if self.changes:
            return "a call changes its inputs or buffers"
        if not self.is_plain:
            return "its inputs or outputs are more than lists, tuples and dicts of tensors, alike in each call"
        odd = sorted({kind for kind in self.leaves if kind not in ("tensor", "none", *PLAIN)})
        return f"an input is a {odd[0]}" if odd else None


@cache
def _reader() -> TypeAdapter[Contract]:
    return TypeAdapter(Contract)


def contract_of(description: Description) -> Contract:
    """What the server recorded of the problem's calls; of an older run, what its graph tells.

    A call whose tensors were not all recorded counts as none: nothing could be checked by it.
    """
    if description.contract is not None:
        found = _reader().validate_python(description.contract)
        return replace(found, calls=()) if any(kind not in OPAQUE for kind in found.leaves) else found
    try:
        return _of_graph(description.graph) if description.graph else Contract()
    except (KeyError, ValidationError):
        return Contract()


def _of_graph(graph: JSON) -> Contract:
    nodes = {output["name"]: output for node in graph["nodes"] for output in _named(node)}
    gives = [nodes[name] for name in graph["outputs"]]
    structure = graph.get("output_structure", "tensor")
    takes = [{key: row[key] for key in ("shape", "dtype", "strides")} for row in graph["inputs"] if "shape" in row]
    inputs = [None] * len(graph["inputs"])
    found = {
        "calls": [{"takes": takes, "gives": [{"shape": g["shape"], "dtype": g["dtype"]} for g in gives]}],
        "leaves": ["tensor" if "shape" in row else _kind(row.get("value")) for row in graph["inputs"]],
        "form": ["tuple", [["tuple", inputs], ["dict", {}]]],
        "returns": None if structure == "tensor" else [structure, [None] * len(gives)],
        "is_plain": structure in ("tensor", "list", "tuple") and (structure != "tensor" or len(gives) == 1),
        "parameters": {row["name"]: {"shape": row["shape"], "dtype": row["dtype"]} for row in graph["parameters"]},
    }
    return _reader().validate_python(found)


def _named(node: JSON) -> list[dict[str, Any]]:
    """A node's output under its name; of several, their getters name them."""
    return [{"name": node["name"], **output} for output in node["outputs"][:1]]


def _kind(value: object) -> str:
    return "none" if value is None else type(value).__name__
