"""From the nodes of a graph to values. Everything that no template covers is refused here, by the operator's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.templates.graph import Graph, Node, Ref, Spec
from kernel_agent.proposers.templates.pointwise import POINTWISE, unary
from kernel_agent.proposers.templates.rowwise import ROWWISE
from kernel_agent.proposers.templates.values import Load, Number, Value, View, fit, lift, narrow, permute, reshape

DTYPES = ("float32", "float16", "bfloat16", "bool")
SAME = ["contiguous", "clone", "detach", "detach_", "alias", "lift_fresh", "lift_fresh_copy"]
CASTS = ["to", "_to_copy", "type_as", "float", "half", "bfloat16", "bool"]
RESHAPES = ["view", "reshape", "_unsafe_view", "flatten", "unflatten", "unsqueeze", "squeeze", "view_as", "reshape_as"]
EXPANDS = ["expand", "expand_as", "broadcast_to"]
FILLS = {"ones": 1.0, "ones_like": 1.0, "zeros": 0.0, "zeros_like": 0.0}
SHOWING = [*SAME, *RESHAPES, *EXPANDS, "slice", "select", "transpose", "permute"]  # of integers too
PIECES = ["chunk", "split", "split_with_sizes"]
SHAPED = ["glu", "prelu", "batch_norm", "windows_max", "windows_avg", "windows_max_last", "windows_avg_last"]
COMPARING = ["eq", "ne"]  # what is computed with integers, beside numbers that a float holds
IN_PLACE = {f"{name}_": name for name in POINTWISE}


def lower(graph: Graph) -> tuple[Value, ...]:
    """The values that the module returns. Raises NotCovered, naming the operator that stands in the way."""
    known = lowered(graph)
    return tuple(_returned(known.get(name)) for name in graph.outputs)


def lowered(graph: Graph) -> dict[str, Any]:
    """The values of all that the graph's outputs rest on, by node. Raises NotCovered as `lower` does."""
    known: dict[str, Any] = {}
    for name, leaf in graph.leaves.items():
        known[name] = Load(leaf, leaf.spec.shape) if leaf.value is None else Number(leaf.value)
    dtypes = {name: leaf.spec.dtype for name, leaf in graph.leaves.items()}
    dtypes |= {node.name: node.outputs[0].dtype for node in graph.nodes if node.outputs}
    wanted = _reachable(graph)
    for node in graph.nodes:
        if node.name in wanted:
            known[node.name] = _cast(node, _node(node, known), dtypes)
    return known


def _returned(value: object) -> Value:
    if not isinstance(value, Value):
        raise NotCovered("the module returns something that is not a tensor of floats.")
    if isinstance(value, Load):
        raise NotCovered(f"these are the elements of {value.leaf.node} as they are: no kernel copies them faster.")
    return value


def names(op: str) -> tuple[str, str]:
    """The operator's name and overload: `aten.add.Tensor` -> (`add`, `Tensor`)."""
    parts = op.split(".")
    return (parts[1], parts[2]) if len(parts) == 3 else (op, "")


def _reachable(graph: Graph) -> set[str]:
    nodes = {node.name: node for node in graph.nodes}
    stack = [*graph.outputs, *(node.name for node in graph.nodes if _changes(names(node.op)[0]))]
    wanted = set[str]()
    while stack:
        name = stack.pop()
        if name in wanted:
            continue
        wanted.add(name)
        if name in nodes:
            stack.extend(mentions([nodes[name].args, nodes[name].kwargs]))
    return wanted


def _changes(base: str) -> bool:
    """Whether an operator of this name changes what it is given, as far as names say that."""
    return base.endswith("_") and not base.endswith("__") and base not in SAME


def mentions(argument: Any) -> list[str]:
    """The nodes that an argument mentions, in order."""
    if isinstance(argument, Ref):
        return [argument.node]
    if isinstance(argument, Mapping):
        argument = list(argument.values())
    return [name for item in argument for name in mentions(item)] if isinstance(argument, list | tuple) else []


def _node(node: Node, known: dict[str, Any]) -> Any:
    if node.op == "_operator.getitem":
        return _item(node, known)
    base, overload = names(node.op)
    args = [_operand(a, known, node.op) for a in node.args]
    kwargs = {k: _operand(a, known, node.op) for k, a in node.kwargs.items()}
    if base in IN_PLACE:
        return _in_place(node, args, kwargs, known)
    rule = _rule(base, overload)
    if rule is None:
        raise NotCovered(f"no template covers {node.op}.")
    if args and isinstance(args[0], Number) and overload != "other" and base in (*ROWWISE, *RULES):
        return _of_number(node, args[0], lambda: rule(node, args, kwargs))
    value = rule(node, args, kwargs)
    if not isinstance(value, Value):
        return value
    if base in COMPARING and any(_read(a) not in DTYPES and not _exact(b) for a, b in (args[:2], args[1::-1])):
        raise NotCovered("templates compare integers only to numbers that a float holds.")
    if node.spec.dtype not in DTYPES and not (node.spec.dtype == "int64" and base in SHOWING):
        raise NotCovered(f"templates compute in {', '.join(DTYPES)}, and {node.op} gives {node.spec.dtype}.")
    return fit(value, node.spec.shape)


def _of_number(node: Node, number: Number, found: Callable[[], Any]) -> Any:
    """What comes of a tensor of one number, which is not told its shape: each part of it is that number."""
    base = names(node.op)[0]
    if base in ROWWISE or base in SHAPED:
        raise NotCovered(f"no template covers {node.op} of a constant.")
    if base in PIECES:
        return (number,) * len(node.outputs)
    return number if base in SHOWING or base in ("t", "numpy_T", "channels_last", "channels_first") else found()


def _exact(number: Any) -> bool:
    """Whether no other integer is this number after both are floats."""
    return isinstance(number, int) and abs(number) < 1 << 24


def _operand(argument: Any, known: dict[str, Any], op: str) -> Any:
    if isinstance(argument, Ref):
        value = known.get(argument.node)
        if value is None:
            raise NotCovered(f"no template covers what {op} reads of {argument.node}.")
        dtype = _read(value)
        if dtype not in DTYPES and not (dtype == "int64" and names(op)[0] in (*SHOWING, *COMPARING)):
            raise NotCovered(f"templates read {', '.join(DTYPES)}, and {op} reads {dtype}.")
        return value
    return [_operand(a, known, op) for a in argument] if isinstance(argument, list) else argument


def _read(value: Any) -> str:
    """The type of the tensor that a value shows; of what is computed, that of all arithmetic."""
    while isinstance(value, View):
        value = value.base
    return value.leaf.spec.dtype if isinstance(value, Load) else "float32"


def _item(node: Node, known: dict[str, Any]) -> Any:
    of, index = known[node.args[0].node], node.args[1]
    if index >= len(of) or of[index] is None:
        raise NotCovered(f"no template covers output {index} of {node.args[0].node} (the positions found).")
    return of[index]


def _in_place(node: Node, args: list[Any], kwargs: dict[str, Any], known: dict[str, Any]) -> Value:
    """Every name of the value gets the new one; what shares its memory under another view is refused."""
    old, base = args[0], IN_PLACE[names(node.op)[0]]
    views = any(isinstance(v, View) and v.base is old for v in known.values())
    if not isinstance(old, Value) or isinstance(old, Load | View | Number) or views:
        raise NotCovered(f"no template covers {node.op} on an input, a constant or a view.")
    new = fit(POINTWISE[base](*args, **kwargs), node.spec.shape)
    for name in [name for name, value in known.items() if value is old]:
        known[name] = new
    return new


def _cast(node: Node, value: Any, dtypes: Mapping[str, str]) -> Any:
    """The value rounded, where the node narrows its type."""
    if names(node.op)[0] not in CASTS or not isinstance(value, Value):
        return value
    before, after = dtypes[node.args[0].node], node.spec.dtype
    if before == after or before == "bool" or after == "float32":
        return value
    return POINTWISE["ne"](value, 0) if after == "bool" else unary(f"round_{after}")(value)


LoweringRule = Callable[[Node, list[Any], dict[str, Any]], Any]


def covers(base: str) -> bool:
    """Whether there is a template's rule for an operator of this name, for some of its arguments at least."""
    return base == "_operator.getitem" or base in IN_PLACE or _rule(base, "") is not None


def _rule(base: str, overload: str) -> LoweringRule | None:
    if base in ROWWISE and not (base in ("max", "min") and overload == "other"):
        return lambda node, args, kwargs: ROWWISE[base](node.op, *args, **kwargs)
    if base in POINTWISE:
        return lambda node, args, kwargs: lift(POINTWISE[base](*args, **kwargs))
    if base in SAME or base in CASTS:
        return _same
    if base in RESHAPES:
        return lambda node, args, kwargs: reshape(lift(args[0]), node.spec.shape)
    if base in EXPANDS:
        return lambda node, args, kwargs: args[0]
    if base in FILLS:
        return lambda node, args, kwargs: Number(FILLS[base])
    return RULES.get(base)


def _same(node: Node, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return args[0]


def _dropout(node: Node, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if args[1] and args[2]:
        raise NotCovered(f"no template covers {node.op} in training, which draws random numbers: call .eval().")
    return args[0]


def _slices(node: Node, value: Value, dim: int, sizes: list[Spec]) -> tuple[Value, ...]:
    dim %= len(value.shape)
    starts = [sum(s.shape[dim] for s in sizes[:i]) for i in range(len(sizes))]
    return tuple(narrow(value, dim, at, s.shape[dim]) for at, s in zip(starts, sizes, strict=True))


def _pieces(node: Node, args: list[Any], kwargs: dict[str, Any]) -> tuple[Value, ...]:
    return _slices(node, args[0], args[2] if len(args) > 2 else kwargs.get("dim", 0), list(node.outputs))


def _glu(node: Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
    dim = args[1] if len(args) > 1 else kwargs.get("dim", -1)
    a, b = _slices(node, args[0], dim, [node.spec, node.spec])
    return a * POINTWISE["sigmoid"](b)


def _slice(node: Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
    value = lift(args[0])
    given = dict(zip(("dim", "start", "end", "step"), args[1:], strict=False)) | kwargs
    dim, start = given.get("dim", 0) % len(value.shape), given.get("start") or 0
    if value.shape == node.spec.shape:
        return value
    size = value.shape[dim]
    start = max(start + size, 0) if start < 0 else min(start, size)
    return narrow(value, dim, start, node.spec.shape[dim], given.get("step", 1))


def _select(node: Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
    value, dim, at = lift(args[0]), args[1] % len(args[0].shape), args[2]
    return reshape(narrow(value, dim, at % value.shape[dim], 1), node.spec.shape)


def _transpose(node: Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
    order = list(range(len(args[0].shape)))
    a, b = args[1], args[2]
    order[a], order[b] = order[b], order[a]
    return permute(args[0], order)


def _channels_last(node: Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
    return permute(lift(args[0]), [0, *range(2, len(node.spec.shape)), 1])


def _channels_first(node: Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
    rank = len(node.spec.shape)
    return permute(lift(args[0]), [0, rank - 1, *range(1, rank - 1)])


def _batch_norm(node: Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
    x, weight, bias, mean, variance, training, _, eps = args[:8]
    assert isinstance(x, Value)
    if training:
        raise NotCovered(f"no template covers {node.op} in training: call .eval().")
    scaled = (x - channels(mean, x)) * POINTWISE["rsqrt"](channels(variance, x) + eps)
    scaled = scaled if weight is None else scaled * channels(weight, x)
    return scaled if bias is None else scaled + channels(bias, x)


def _windows(node: Node, args: list[Any], kwargs: dict[str, Any]) -> Value:
    """What windows side by side fold: their largest element, or the mean. With channels last they follow the batch."""
    value, window, base = lift(args[0]), args[1], names(node.op)[0]
    taps, first = [value], 1 if base.endswith("_last") else len(node.spec.shape) - len(window)
    for dim, size in enumerate(window, first):
        taps = [narrow(tap, dim, at, node.spec.shape[dim], size) for tap in taps for at in range(size)]
    join = POINTWISE["maximum" if "max" in base else "add"]
    folded = taps[0]
    for tap in taps[1:]:
        folded = join(folded, tap)
    return folded if "max" in base else folded / len(taps)


def channels(weight: Value, x: Value) -> Value:
    """A vector of one number a channel (dimension 1 of x), shaped to broadcast against x."""
    return reshape(weight, (prod(weight.shape), *(1,) * (len(x.shape) - 2)))


RULES: dict[str, LoweringRule] = {
    "dropout": _dropout,
    **dict.fromkeys(PIECES, _pieces),
    "slice": _slice,
    "select": _select,
    "glu": _glu,
    "transpose": _transpose,
    **dict.fromkeys(("t", "numpy_T"), lambda node, args, kwargs: permute(args[0], range(len(args[0].shape))[::-1])),
    "permute": lambda node, args, kwargs: permute(args[0], [d % len(args[0].shape) for d in args[1]]),
    "full": lambda node, args, kwargs: Number(float(args[1])),
    "full_like": lambda node, args, kwargs: Number(float(args[1])),
    "scalar_tensor": lambda node, args, kwargs: Number(float(args[0])),
    "broadcast_tensors": lambda node, args, kwargs: tuple(fit(v, node.spec.shape) for v in args[0]),
    "prelu": lambda node, args, kwargs: POINTWISE["leaky_relu"](args[0], channels(args[1], args[0])),
    "batch_norm": _batch_norm,
    "channels_last": _channels_last,
    "channels_first": _channels_first,
    **dict.fromkeys(("windows_max", "windows_avg", "windows_max_last", "windows_avg_last"), _windows),
}
