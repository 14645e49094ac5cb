"""The graph of a model as JSON, and the work it must do at least: bytes moved and operations."""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from typing import Any

import torch

from ncu_server.worker import private
from ncu_server.worker.answers import Traced, Work
from ncu_server.worker.calls import Call, called
from ncu_server.worker.dispatch import Watch
from ncu_server.worker.tensors import flatten

flop_registry = private.take("torch.utils.flop_counter.flop_registry")
tree_leaves = private.take("torch.utils._pytree.tree_leaves")
REDUCTIONS = ("sum", "mean", "max", "min", "amax", "amin", "softmax", "log_softmax", "layer_norm", "rms_norm", "var")


# Operators whose first tensor is read here and there: the rows that they choose, each once, or else what they give.
LOOKUPS = {
    *("embedding", "_embedding_bag", "_embedding_bag_forward_only", "gather", "index", "index_select", "take"),
    *("masked_select", "searchsorted", "trace", "any", "all", "grid_sampler_2d", "grid_sampler_3d"),
    *(f"{kind}{d}d" for kind in ("upsample_nearest", "_upsample_nearest_exact") for d in (1, 2, 3)),
    *("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d"),
}
# The places of tensors of which an operator may have to read nothing: it writes over them, or reads where a mask says.
SPARED = {
    "where": (1, 2),
    "bucketize": (1,),
    **dict.fromkeys(("masked_fill", "masked_fill_", "tril", "triu", "tril_", "triu_"), (0,)),
    **dict.fromkeys(("copy_", "fill_", "zero_", "index_put_", "index_copy_", "index_fill_", "scatter_"), (0,)),
}


class Traffic(Watch):
    """Counts the bytes of given tensors that operators must read: views count for what they show, what is looked up in
    for what it gives, what is written over, or read where a mask says, for nothing, as an argument that nobody uses.
    `flops` are those of matrix products and convolutions."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        super().__init__()
        self._sizes = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors if t.numel()}
        self._read: dict[int, float] = defaultdict(float)
        self._rows: dict[tuple[object, ...], torch.Tensor] = {}  # by the view that shows them: which are chosen so far
        self.flops = 0.0

    def read(self, tensors: list[torch.Tensor]) -> float:
        """Bytes of these that are read at least once."""
        storages = {t.untyped_storage().data_ptr() for t in tensors}
        return float(sum(min(n, self._sizes[s]) for s, n in self._read.items() if s in storages))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if count := flop_registry.get(func.overloadpacket):
            self.flops += count(*args, **(kwargs or {}), out_val=out)
        if all(r.alias_info is None or r.alias_info.is_write for r in func._schema.returns):
            name, fetched = func.overloadpacket.__name__, sum(_extent(t) for t in _tensors(out)[:1])
            for place, tensor in enumerate(_tensors([args, kwargs or {}])):
                storage = tensor.untyped_storage().data_ptr()
                if storage in self._sizes and place not in SPARED.get(name, ()):
                    n = _extent(tensor)
                    if name in LOOKUPS and not place:
                        rows = _chosen(name, args)
                        n = min(n, fetched) if rows is None else self._of_rows(tensor, rows)
                    self._read[storage] = max(self._read[storage], n)
        return out

    def _of_rows(self, tensor: torch.Tensor, rows: torch.Tensor) -> float:
        """Bytes of the rows that this and earlier calls choose of what a view shows."""
        view = (tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tensor.shape, tensor.stride())
        if view not in self._rows:
            self._rows[view] = torch.zeros(len(tensor), dtype=torch.bool, device=tensor.device)
        self._rows[view][rows.reshape(-1).long()] = True
        return int(self._rows[view].sum()) * _extent(tensor) / max(len(tensor), 1)


def _chosen(name: str, args: Any) -> torch.Tensor | None:
    """Which of the rows along the first dimension a lookup gives; None where it gives something else."""
    match name, args:
        case "index_select", (_, 0, torch.Tensor() as rows):
            return rows
        case (("embedding" | "_embedding_bag" | "_embedding_bag_forward_only"), (_, torch.Tensor() as rows, *_)):
            return rows
        case "index", (_, [torch.Tensor() as rows, *others]) if not any(other is not None for other in others):
            return None if rows.dtype in (torch.bool, torch.uint8) else rows
    return None


def _extent(tensor: torch.Tensor) -> float:
    """Bytes of different elements that a tensor shows."""
    shown = [n for n, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride]
    return float(math.prod(shown) * tensor.element_size()) if tensor.numel() else 0.0


def work(model: torch.nn.Module, arguments: Call) -> Work:
    """Parameters, shapes, the FLOPs of matrix products and convolutions, and the bytes that must move at least once;
    `argument_bytes` are those of the arguments among what is read."""
    parameters = [
        {"name": n, **_shape(p), "kind": kind}
        for kind, named in (("parameter", model.named_parameters()), ("buffer", model.named_buffers()))
        for n, p in named
    ]
    own = copy.deepcopy(model)
    inputs = flatten(arguments)[1]
    given = [*inputs, *own.parameters(), *own.buffers()]
    with torch.no_grad(), Traffic(given) as traffic:
        outputs = called(own, arguments)
    held = {t.untyped_storage().data_ptr() for t in given}
    returned = flatten(outputs)[1]
    made = [t for t in returned if t.untyped_storage().data_ptr() not in held]
    floats = {t.dtype for t in given if t.is_floating_point()}
    return {
        "inputs": [_shape(t) for t in inputs],
        "outputs": [_shape(t) for t in returned],
        "parameters": parameters,
        "flops": traffic.flops,
        "read_bytes": traffic.read(given),
        "argument_bytes": traffic.read(inputs),
        "written_bytes": float(sum(_extent(t) for t in made)),
        "narrow": bool(floats) and max(t.itemsize for t in floats) < 4,
        "byte_formats": sorted({name for t in given if (name := _byte_format(t.dtype))}),
    }


def _byte_format(dtype: torch.dtype) -> str | None:
    """What matrix units call a format of one byte; None for what they do not multiply."""
    if dtype.is_floating_point and dtype.itemsize == 1:
        return "fp8"
    return "int8" if dtype in (torch.int8, torch.uint8) else None


def graph(model: torch.nn.Module, arguments: Call) -> Traced:
    """torch.export's graph before decomposition, which keeps `softmax`, `layer_norm` and `linear` whole.

    Without gradients, as a model is called: else a block under `torch.no_grad()` is a graph of its own.
    """
    args, kwargs = arguments
    with torch.no_grad():
        exported = torch.export.export(model, tuple(args), kwargs, strict=False)
    encoded = _encode(exported) | {"keywords": list(kwargs)}
    operators = list(dict.fromkeys(n["op"] for n in encoded["nodes"]))
    return {"graph": encoded, "operators": operators, "flops": float(_elementwise(encoded))}


def _encode(program: Any) -> dict[str, Any]:
    signature = program.graph_signature
    kinds = {
        "parameter": signature.inputs_to_parameters,
        "buffer": signature.inputs_to_buffers,
        "constant": signature.inputs_to_lifted_tensor_constants,
    }
    graph: dict[str, Any] = {"inputs": [], "parameters": [], "nodes": [], "outputs": []}
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder":
            kind = next((k for k, names in kinds.items() if node.name in names), None)
            if kind:
                name = kinds[kind][node.name]
                entry = {"name": name, "node": node.name, **_shape(value), "kind": kind}
                graph["parameters"].append(entry | _number(program.constants.get(name)))
            elif isinstance(value, torch.Tensor):
                graph["inputs"].append(
                    {"name": node.name, **_shape(value), "strides": [int(s) for s in value.stride()]}
                )
            else:
                graph["inputs"].append({"name": node.name, "value": _argument(value)})
        elif node.op == "call_function":
            values = value if isinstance(value, list | tuple) else [value]
            outputs = [_shape(v) for v in values if isinstance(v, torch.Tensor)]
            keywords = {k: _argument(v) for k, v in node.kwargs.items()}
            graph["nodes"].append(
                {
                    "name": node.name,
                    "op": _operator(node.target),
                    "args": _argument(node.args),
                    "kwargs": keywords,
                    "outputs": outputs,
                }
            )
        elif node.op == "output":
            graph["outputs"] = [n.name for n in node.args[0] if isinstance(n, torch.fx.Node)]
    returned, taken = program.call_spec.out_spec, program.call_spec.in_spec
    flat = len(graph["outputs"]) == returned.num_leaves and _depth(returned) < 2
    graph["output_structure"] = (returned.type.__name__ if returned.type else "tensor") if flat else "mixed"
    graph["input_structure"] = "flat" if _depth(taken) < 3 else "mixed"  # (arguments, keywords)
    return graph


def _number(constant: Any) -> dict[str, float]:
    """The value of a tensor of one number that forward makes of a Python number."""
    one = type(constant) is torch.Tensor and constant.numel() == 1 and constant.is_floating_point()
    return {"value": float(constant)} if one and math.isfinite(float(constant)) else {}


def _depth(spec: Any) -> int:
    """How many containers lie in one another."""
    return 1 + max(map(_depth, spec.children()), default=0) if spec.type else 0


def _operator(target: Any) -> str:
    return str(target) if hasattr(target, "_schema") else f"{target.__module__}.{target.__name__}"


def _argument(value: Any) -> Any:
    if isinstance(value, torch.fx.Node):
        return {"node": value.name}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if isinstance(value, bool | int | float | str | type(None)):
        return value
    if isinstance(value, list | tuple):
        return [_argument(x) for x in value]
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    return {"repr": repr(value)}


def _shape(tensor: torch.Tensor) -> dict[str, Any]:
    return {"shape": [int(s) for s in tensor.shape], "dtype": str(tensor.dtype).removeprefix("torch.")}


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [x for x in tree_leaves(tree) if isinstance(x, torch.Tensor)]


def _elementwise(graph: dict[str, Any]) -> int:
    """One operation an element for all that the matmul counter does not see: outputs, or inputs of reductions."""
    sizes = {n["name"]: sum(math.prod(o["shape"]) for o in n["outputs"]) for n in graph["nodes"]}
    sizes |= {i["name"]: math.prod(i["shape"]) for i in graph["inputs"] if "shape" in i}
    total = 0
    for node in graph["nodes"]:
        reads = [sizes.get(a["node"], 0) for a in node["args"] if isinstance(a, dict) and "node" in a]
        reduction = node["op"].split(".")[1:2] and node["op"].split(".")[1] in REDUCTIONS
        total += max([sizes[node["name"]], *reads]) if reduction else sizes[node["name"]]
    return total
