"""The graph of a model as JSON, and the work it must do at least: bytes moved and operations."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

REDUCTIONS = ("sum", "mean", "max", "min", "amax", "amin", "softmax", "log_softmax", "layer_norm", "rms_norm", "var")


def work(model: torch.nn.Module, arguments: list[Any]) -> dict[str, Any]:
    """Parameters, shapes, the FLOPs of matrix products and convolutions, and the bytes that must move at least once."""
    parameters = [
        {"name": n, **_shape(p), "kind": kind}
        for kind, named in (("parameter", model.named_parameters()), ("buffer", model.named_buffers()))
        for n, p in named
    ]
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        outputs = copy.deepcopy(model)(*arguments)
    tensors = [*_tensors(arguments), *model.parameters(), *model.buffers(), *_tensors(outputs)]
    return {
        "inputs": [_shape(t) for t in _tensors(arguments)],
        "outputs": [_shape(t) for t in _tensors(outputs)],
        "parameters": parameters,
        "flops": float(counter.get_total_flops()),
        "bytes": float(sum(t.numel() * t.element_size() for t in tensors)),
    }


def graph(model: torch.nn.Module, arguments: list[Any]) -> dict[str, Any]:
    """torch.export's graph before decomposition, which keeps `softmax`, `layer_norm` and `linear` whole."""
    encoded = _encode(torch.export.export(model, tuple(arguments), strict=False))
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
                graph["parameters"].append(
                    {"name": kinds[kind][node.name], "node": node.name, **_shape(value), "kind": kind}
                )
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
    if len(graph["outputs"]) != program.call_spec.out_spec.num_leaves:
        return graph | {"output_structure": "mixed"}
    structure = str(program.call_spec.out_spec.type.__name__) if program.call_spec.out_spec.type else "tensor"
    graph["output_structure"] = structure if structure in ("tuple", "list", "dict") else "tensor"
    return graph


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
    return [x for x in torch.utils._pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


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
