"""Trees of tensors in shared memory: one memfd holds the bytes, a JSON spec says where each tensor lies."""

from __future__ import annotations

import contextlib
import importlib
import math
import mmap
import os
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from ncu_server.sandbox.shared_memory import ALIGNMENT, Spec, TensorLayout
from ncu_server.worker import device_memory, records
from ncu_server.worker.dense import ONLY, Unjudgeable, unlike
from ncu_server.worker.driver import DriverError

PLAIN = (torch.Tensor, torch.nn.Parameter)
SCALARS = (bool, int, float, str, type(None))
MOST_BITS = 4096  # of an int that is told


class UnacceptableOutput(TypeError):  # noqa: N818
    """What a candidate returns is nothing that can be compared."""


def flatten(tree: Any, strict: bool = False) -> tuple[Any, list[torch.Tensor]]:
    """A JSON-able structure with numbered places, and the tensors in that order.

    `strict` refuses subclasses of Tensor and tensors with attributes of their own (they can lie about their values).
    Raises TypeError (UnacceptableOutput where strict) for what is neither a container, a tensor nor a plain scalar, and
    Unjudgeable for a tensor that is not dense.
    """
    tensors: list[torch.Tensor] = []
    refusal = UnacceptableOutput if strict else TypeError
    try:
        return _walked(tree, tensors, refusal), tensors
    except RecursionError:
        raise refusal("containers lie in one another without end") from None


def _walked(node: Any, tensors: list[torch.Tensor], refusal: type[TypeError]) -> Any:
    """No closure that calls itself: such a cycle would keep the tensors until the garbage collector comes by.

    Containers are gone through by the methods of Python's own types, not by those of a candidate's classes."""
    kind, strict = type(node), refusal is UnacceptableOutput
    if issubclass(kind, torch.Tensor):
        if strict and (kind not in PLAIN or node.__dict__):
            raise refusal(f"an output is a {kind.__name__} with behaviour of its own, not a plain torch.Tensor")
        if words := unlike(node):
            if strict:
                raise refusal(f"the candidate gives {words} as tensor {len(tensors)}: {ONLY}")
            raise Unjudgeable(words, len(tensors))
        tensors.append(node.detach())
        return {"tensor": len(tensors) - 1}
    try:
        record = records.parts(node)
    except TypeError as fault:
        raise refusal(str(fault)) from None
    if record:
        fields = [[name, _walked(value, tensors, refusal)] for name, value in record[1]]
        return {"record": [record[0], records.label(kind), fields]}
    if issubclass(kind, list):
        return {"list": [_walked(x, tensors, refusal) for x in list.__iter__(node)]}
    if issubclass(kind, tuple):
        return {"tuple": [_walked(x, tensors, refusal) for x in tuple.__iter__(node)]}
    if issubclass(kind, dict):
        return {"dict": [[_key(k, refusal), _walked(v, tensors, refusal)] for k, v in dict.items(node)]}
    if (leaf := _leaf(node, kind, strict)) is None:
        raise refusal(f"{kind.__name__} is neither a tensor, a container of tensors nor a plain value")
    if kind is int and node.bit_length() > MOST_BITS:
        raise refusal(f"an int of {node.bit_length()} bits is more than can be told")
    return leaf


def _leaf(node: Any, kind: type, strict: bool) -> dict[str, Any] | None:
    """A plain value; those that only go to a candidate may be more than it can give back. None for what is none."""
    if issubclass(kind, torch.dtype):
        return {"dtype": str(node).removeprefix("torch.")}
    if issubclass(kind, SCALARS):
        return {"value": node}
    if issubclass(kind, complex):
        return {"complex": [complex.real.__get__(node), complex.imag.__get__(node)]}
    if strict:
        return None
    if issubclass(kind, torch.device):
        return {"device": str(node)}
    if kind.__module__ == "numpy" and getattr(node, "shape", None) == () and isinstance(node.item(), SCALARS):
        return {"value": node.item()}
    for home in (getattr(node, "__module__", None), "torch.nn.functional", "torch"):
        name = getattr(node, "__name__", None)
        if str(home).split(".")[0] == "torch" and name and getattr(sys.modules.get(str(home)), name, None) is node:
            return {"named": [home, name]}
    return None


def _key(key: Any, refusal: type[TypeError]) -> Any:
    if type(key) not in SCALARS:
        raise refusal(f"a dict has a key of type {type(key).__name__}; plain values alone are told")
    return key


def unflatten(structure: Any, tensors: list[torch.Tensor]) -> Any:
    """The inverse of `flatten`."""
    kind, body = next(iter(structure.items()))
    match kind:
        case "tensor":
            return tensors[body]
        case "list":
            return [unflatten(x, tensors) for x in body]
        case "tuple":
            return tuple(unflatten(x, tensors) for x in body)
        case "dict":
            return {k: unflatten(v, tensors) for k, v in body}
        case "record":
            form, label, fields = body
            return records.make(form, label, [(name, unflatten(part, tensors)) for name, part in fields])
        case "dtype":
            return getattr(torch, body)
        case "complex":
            return complex(*body)
        case "device":
            return torch.device(body)
        case "named":
            return getattr(importlib.import_module(body[0]), body[1])
        case _:
            return body


def spec_of(structure: Any, tensors: list[torch.Tensor]) -> Spec:
    """Structure, dtypes, shapes and strides of a flattened tree, with the offset in bytes that each tensor gets."""
    places: list[TensorLayout] = []
    offset = 0
    for t in tensors:
        size = t.numel() * t.element_size()
        places.append(
            {
                "shape": list(t.shape),
                "dtype": str(t.dtype).removeprefix("torch."),
                "strides": list(t.stride()),
                "offset": offset,
                "bytes": size,
            }
        )
        offset += math.ceil(size / ALIGNMENT) * ALIGNMENT
    return {"structure": structure, "tensors": places, "bytes": max(offset, 1)}


def write(fd: int, tree: Any, strict: bool = False) -> Spec:
    """Put a tree into the memfd and say where everything lies."""
    return put(fd, *flatten(tree, strict))


def put(fd: int, structure: Any, tensors: list[torch.Tensor]) -> Spec:
    """Put a flattened tree into the memory and say where everything lies: a memfd, which grows to that size, or memory
    of the device, into which nothing is put that is larger."""
    spec = spec_of(structure, tensors)
    if device_memory.is_shared(fd):
        with contextlib.suppress(DriverError):  # too small for it, as its layout tells
            _fill(device_memory.opened(fd, spec["bytes"]), spec, tensors)
            torch.cuda.synchronize()  # who maps it next is another process
        return spec
    os.ftruncate(fd, spec["bytes"])
    with mmap.mmap(fd, spec["bytes"]) as shared:
        room = torch.frombuffer(shared, dtype=torch.uint8)
        _fill(room, spec, tensors)
        del room
    return spec


def give(fd: int, structure: Any, tensors: list[torch.Tensor]) -> Spec:
    """As `put`, by a process of ours: what lies on a GPU stays there, in memory that takes the memfd's place."""
    if not any(tensor.is_cuda for tensor in tensors) or device_memory.refusal():
        return put(fd, structure, tensors)
    spec = spec_of(structure, tensors)
    descriptor, room = device_memory.make(spec["bytes"])
    _fill(room, spec, tensors)
    torch.cuda.synchronize()
    device_memory.hand(fd, descriptor, spec["bytes"])
    return spec


class Blank:
    """Memory as `give` makes it, to be filled before it is given: so nothing lies there twice."""

    def __init__(self, structure: Any, likes: list[torch.Tensor], device: str) -> None:
        """For `tensors` that are like those of a flattened tree; these may hold nothing."""
        self._spec, self._descriptor = spec_of(structure, likes), -1
        if device == "cuda" and not device_memory.refusal():
            self._descriptor, room = device_memory.make(self._spec["bytes"])
        else:
            room = torch.empty(self._spec["bytes"], dtype=torch.uint8, device=device)
        self.tensors = [_typed(room, place) for place in self._spec["tensors"]]

    def give(self, fd: int) -> Spec:
        """Let it take the memfd's place, or put there what it holds."""
        if self._descriptor < 0:
            return put(fd, self._spec["structure"], self.tensors)
        torch.cuda.synchronize()
        device_memory.hand(fd, self._descriptor, self._spec["bytes"])
        self._descriptor = -1
        return self._spec

    def close(self) -> None:
        """Let go of what was not given."""
        if self._descriptor >= 0:
            os.close(self._descriptor)


def _fill(room: torch.Tensor, spec: Spec, tensors: list[torch.Tensor]) -> None:
    for tensor, place in zip(tensors, spec["tensors"], strict=True):
        if place["bytes"]:
            held = tensor.resolve_conj().resolve_neg().contiguous()
            _raw(room, place).copy_(held.reshape(-1).view(torch.uint8))


def read(fd: int, spec: Spec) -> list[torch.Tensor]:
    """The tensors of a memfd as a private copy-on-write mapping: what is written to them is not seen by others. Those
    of device memory lie there for all who map it, and nobody may write to them."""
    if device_memory.is_shared(fd):
        room = device_memory.opened(fd, spec["bytes"])
    else:
        shared = mmap.mmap(fd, spec["bytes"], flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        room = torch.frombuffer(shared, dtype=torch.uint8)
    return [_typed(room, place) for place in spec["tensors"]]


def read_and_close(descriptors: list[int], place: int, spec: Spec) -> list[torch.Tensor]:
    """As `read`, of one of several descriptors, which is closed once it is mapped: code that runs later has none."""
    tensors = read(descriptors[place], spec)
    os.close(descriptors[place])
    descriptors[place] = -1
    return tensors


def _raw(room: torch.Tensor, place: TensorLayout) -> torch.Tensor:
    return room[place["offset"] : place["offset"] + place["bytes"]]


def _typed(room: torch.Tensor, place: TensorLayout) -> torch.Tensor:
    dtype = getattr(torch, place["dtype"])
    if not place["bytes"]:
        return torch.empty(place["shape"], dtype=dtype, device=room.device)
    return _raw(room, place).view(dtype).view(place["shape"])


def placed(tensor: torch.Tensor, place: TensorLayout, device: str, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A copy on the device with the strides that the original had; in another `dtype` where one is asked for."""
    dtype = dtype or tensor.dtype
    if any(stride == 0 and size > 1 for stride, size in zip(place["strides"], place["shape"], strict=True)):
        return tensor.to(device, dtype, copy=True)  # an expanded tensor is one value many times: none can be written to
    fresh = torch.empty_strided(place["shape"], place["strides"], dtype=dtype, device=device)
    return fresh.copy_(tensor)


def apart(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors, or a copy of each that does not have memory to itself."""
    stores = [t.untyped_storage() for t in tensors]
    shared = Counter(store.data_ptr() for store in stores)
    alone = [shared[s.data_ptr()] == 1 and s.nbytes() == t.nbytes for s, t in zip(stores, tensors, strict=True)]
    return [t if own else t.clone() for t, own in zip(tensors, alone, strict=True)]


def real(tensor: torch.Tensor) -> torch.Tensor:
    """Complex numbers as pairs of real ones in a last dimension; any other tensor as it is."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """Floats and complex numbers in double precision; any other tensor as it is."""
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor


def arrived(fd: int, spec: Spec, device: str) -> Any:
    """The tree that lies in the memory, its tensors copied to the device."""
    moved = [placed(t, p, device) for t, p in zip(read(fd, spec), spec["tensors"], strict=True)]
    return unflatten(spec["structure"], moved)


def copied(tree: Any, device: str) -> Any:
    """The tree, its tensors copied to the device with their strides."""
    structure, tensors = flatten(tree)
    layouts = spec_of(structure, tensors)["tensors"]
    return unflatten(structure, [placed(t, p, device) for t, p in zip(tensors, layouts, strict=True)])


def mapped(tree: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The tree with every tensor changed."""
    structure, tensors = flatten(tree)
    return unflatten(structure, [change(t) for t in tensors])
