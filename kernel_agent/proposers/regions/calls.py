"""Calls of PyTorch as a person would write them; what has no such form goes by `torch.ops.aten.<op>.<overload>`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.templates.attention import ATTENTION, ROLES, sides
from kernel_agent.proposers.templates.graph import Node, Ref
from kernel_agent.proposers.templates.lowering import names

Say = Callable[[Any], str]

# Functions whose arguments are those of the operator, in its order.
FUNCTIONAL = {
    *(f"{kind}{d}d" for d in (1, 2, 3) for kind in ("conv", "conv_transpose", "max_pool", "avg_pool")),
    *(f"adaptive_avg_pool{d}d" for d in (1, 2, 3)),
    *("linear", "bilinear", "relu", "gelu", "silu", "selu", "celu", "leaky_relu", "hardtanh", "hardswish", "mish"),
    *("hardsigmoid", "softplus", "relu6", "dropout", "glu", "prelu", "threshold", "pixel_shuffle", "one_hot"),
    "scaled_dot_product_attention",
}
TORCH = {
    *(
        "abs",
        "add",
        "sub",
        "mul",
        "div",
        "exp",
        "log",
        "sqrt",
        "rsqrt",
        "tanh",
        "sigmoid",
        "pow",
        "neg",
        "where",
        "clamp",
    ),
    *("matmul", "bmm", "mm", "mv", "addmm", "baddbmm", "cat", "stack", "softmax", "log_softmax", "logsumexp", "cumsum"),
    *(
        "cumprod",
        "argmax",
        "argmin",
        "sum",
        "mean",
        "amax",
        "amin",
        "maximum",
        "minimum",
        "flip",
        "tril",
        "triu",
        "roll",
    ),
    *("gather", "index_select", "outer", "diag", "norm", "erf", "sin", "cos", "square", "var", "std", "prod", "sort"),
    *("_foreach_add_", "_foreach_copy_"),
    *("constant_pad_nd", "topk", "masked_fill", "reciprocal", "unbind", "repeat_interleave", "meshgrid", "rsub"),
}
METHODS = {
    *(
        "permute",
        "transpose",
        "unsqueeze",
        "squeeze",
        "expand",
        "contiguous",
        "flatten",
        "chunk",
        "split",
        "t",
        "select",
    ),
    *("repeat", "add_", "copy_", "mul_", "detach", "clone", "unflatten", "expand_as", "type_as", "cumsum", "unfold"),
}
RESHAPED = {"view", "_unsafe_view", "reshape"}
FEWER = {"layer_norm": 5, "group_norm": 5}  # arguments that torch.nn.functional takes


def spoken(node: Node) -> str:
    """What PyTorch calls an operator that the plan tells apart by its layout, or as depthwise."""
    return names(node.op)[0].removesuffix("_last").replace("depthwise", "conv")


def written(node: Node, say: Say, device: str) -> str:
    """The Python expression of a call. `say` gives the expression of an argument that is no literal.

    Raises NotCovered where an argument can't be written.
    """
    text = Writer(say, device)
    if node.op == "_operator.getitem":
        return f"{text.of(node.args[0])}[{node.args[1]}]"
    base = names(node.op)[0]
    special = SPECIAL.get(base)
    if special and (expression := special(node, text)):
        return expression
    args = [text.of(a) for a in node.args]
    kwargs = [f"{key}={text.of(a)}" for key, a in node.kwargs.items()]
    plain = not any(key in ("layout", "pin_memory", "memory_format", "device") for key in node.kwargs)
    if plain and base in FUNCTIONAL:
        return f"torch.nn.functional.{base}({', '.join([*args, *kwargs])})"
    if plain and base in TORCH:
        return f"torch.{base}({', '.join([*args, *kwargs])})"
    if plain and base in METHODS and isinstance(node.args[0], Ref):
        return f"{args[0]}.{base}({', '.join([*args[1:], *kwargs])})"
    return _as_operator(node, args, kwargs)


def _as_operator(node: Node, args: Sequence[str], kwargs: Sequence[str]) -> str:
    if node.op.startswith("aten.") and node.op.count(".") == 2:
        return f"torch.ops.{node.op}({', '.join([*args, *kwargs])})"
    raise NotCovered(f"no source says how {node.op} is called.")


class Writer:
    """Arguments as Python."""

    def __init__(self, say: Say, device: str) -> None:
        self._say, self._device = say, device

    def of(self, value: Any) -> str:
        """One argument."""
        if isinstance(value, Ref):
            return self._say(value)
        if isinstance(value, Mapping):
            return self._object(value)
        if isinstance(value, list | tuple):
            inner = [self.of(item) for item in value]
            refs = any(isinstance(item, Ref) for item in value)
            return (
                f"[{', '.join(inner)}]"
                if refs or not inner
                else f"({', '.join(inner)}{',' if len(inner) == 1 else ''})"
            )
        if isinstance(value, float) and value != value:
            return "float('nan')"
        if isinstance(value, float) and value in (float("inf"), float("-inf")):
            return f"float('{value}')"
        return repr(value)

    def _object(self, value: Mapping[str, Any]) -> str:
        if "dtype" in value:
            return f"torch.{value['dtype']}"
        said = str(value.get("repr", value))
        if said.startswith("device("):
            return self._device
        if said.startswith("torch.") and said.replace(".", "").replace("_", "").isalnum():
            return said
        raise NotCovered(f"no source says what {said} is.")


def _reshape(node: Node, text: Writer) -> str | None:
    shape = node.args[1]
    return f"{text.of(node.args[0])}.reshape({', '.join(str(n) for n in shape)})" if _numbers(shape) else None


def _numbers(shape: Any) -> bool:
    return isinstance(shape, list | tuple) and len(shape) > 0 and all(isinstance(n, int) for n in shape)


def _einsum(node: Node, text: Writer) -> str:
    return f"torch.einsum({node.args[0]!r}, {', '.join(text.of(a) for a in node.args[1])})"


def _embedding(node: Node, text: Writer) -> str | None:
    weight, indices = node.args[:2]
    return f"torch.nn.functional.embedding({text.of(indices)}, {text.of(weight)})"


def _norm(node: Node, text: Writer) -> str:
    base = names(node.op)[0]
    return f"torch.nn.functional.{base}({', '.join(text.of(a) for a in node.args[: FEWER[base]])})"


def _batch_norm(node: Node, text: Writer) -> str:
    x, weight, bias, mean, var, training, momentum, eps = (text.of(a) for a in node.args[:8])
    return f"torch.nn.functional.batch_norm({x}, {mean}, {var}, {weight}, {bias}, {training}, {momentum}, {eps})"


def _channels_last(node: Node, text: Writer) -> str:
    """A call over planes or spaces with channels last, which PyTorch knows by strides."""
    base, rank = spoken(node), len(node.spec.shape)
    base = base if "windows" not in base else f"{base.removeprefix('windows_')}_pool{rank - 2}d"
    args = [text.of(a) for a in node.args]
    first, last = [0, rank - 1, *range(1, rank - 1)], [0, *range(2, rank), 1]
    layout = "torch.channels_last" if rank == 4 else "torch.channels_last_3d"
    args[0] += f".permute({_listed(first)}).contiguous(memory_format={layout})"
    return f"torch.nn.functional.{base}({', '.join(args)}).permute({_listed(last)})"


def _depthwise(node: Node, text: Writer) -> str:
    return f"torch.nn.functional.{spoken(node)}({', '.join(text.of(a) for a in node.args)})"


def _turned(node: Node, text: Writer) -> str:
    rank = len(node.spec.shape)
    dims = [0, *range(2, rank), 1] if names(node.op)[0] == "channels_last" else [0, rank - 1, *range(1, rank - 1)]
    return f"{text.of(node.args[0])}.permute({_listed(dims)}).contiguous()"


def _listed(dims: Sequence[int]) -> str:
    return ", ".join(map(str, dims))


def _slice(node: Node, text: Writer) -> str | None:
    dim, start, end, step = [*node.args[1:], *[None] * 4][:4]
    if not isinstance(dim, int | None) or node.kwargs or (dim or 0) < 0:
        return None
    end = None if end is not None and isinstance(end, int) and end >= 2**62 else end
    said = ["" if n in (None, 0) and i == 0 else "" if n is None else text.of(n) for i, n in enumerate((start, end))]
    piece = f"{said[0]}:{said[1]}" + (f":{step}" if step not in (None, 1) else "")
    return f"{text.of(node.args[0])}[{', '.join([*[':'] * (dim or 0), piece])}]"


def _to(node: Node, text: Writer) -> str | None:
    found = [a for a in (*node.args[1:], *node.kwargs.values()) if isinstance(a, Mapping) and "dtype" in a]
    return f"{text.of(node.args[0])}.to({text.of(found[0])})" if len(found) == 1 else None


def _empty(node: Node, text: Writer) -> str | None:
    how = [f"{key}={text.of(node.kwargs[key])}" for key in ("dtype", "device") if key in node.kwargs]
    known = len(how) == len(node.kwargs) == 2 and _numbers(node.args[0])
    return f"torch.empty({', '.join([text.of(node.args[0]), *how])})" if known else None


def _values(node: Node, text: Writer) -> str:
    base = names(node.op)[0].removesuffix("_values")
    return f"torch.nn.functional.{base}({', '.join(text.of(a) for a in node.args)})"


def _scan(node: Node, text: Writer) -> str | None:
    """A scan as PyTorch says it: backwards between two flips, without its own element behind zeros or ones."""
    base, overload = names(node.op)
    of, dim = text.of(node.args[0]), node.args[1]
    if overload in ("default", "") or not isinstance(dim, int):
        return None
    flipped = f"torch.flip({of}, ({dim},))" if "reverse" in overload else of
    size = node.spec.shape[dim]
    said = f"torch.{base}({flipped}, {dim})"
    if "exclusive" in overload:
        start = "ones" if base == "cumprod" else "zeros"
        first = f"torch.{start}_like({flipped}.narrow({dim}, 0, 1))"
        said = f"torch.cat([{first}, torch.{base}({flipped}.narrow({dim}, 0, {size - 1}), {dim})], {dim})"
    return f"torch.flip({said}, ({dim},))" if "reverse" in overload else said


def _attention(node: Node, text: Writer) -> str:
    """Attention that no kernel computes: PyTorch's own, its dimensions in order."""
    equation, tensors, how, scale, fill, _ = node.args
    *letters, out = sides(equation)
    batch = "".join(letter for letter in out if letter not in ROLES)
    if any(set(side) != {*batch, *pair} for side, pair in zip(letters, ("md", "nd", "ne"), strict=False)) or (
        how == "hide" and fill != float("-inf")
    ):
        raise NotCovered("no source says how this attention is called.")
    pairs = zip(letters, ("md", "nd", "ne"), tensors, strict=False)
    given = [f'torch.einsum("{side}->{batch}{pair}", {text.of(ref)})' for side, pair, ref in pairs]
    if how == "causal":
        given.append("is_causal=True")
    elif how != "none":
        given.append(f"attn_mask={'~' if how == 'hide' else ''}{text.of(tensors[3])}")
    called = f"torch.nn.functional.scaled_dot_product_attention({', '.join(given)}, scale={scale!r})"
    return f'torch.einsum("{batch}me->{out}", {called})'


SPECIAL: dict[str, Callable[[Node, Writer], str | None]] = {
    **dict.fromkeys(RESHAPED, _reshape),
    **dict.fromkeys(FEWER, _norm),
    **{f"adaptive_max_pool{d}d_values": _values for d in (1, 2, 3)},
    ATTENTION: _attention,
    "batch_norm": _batch_norm,
    "cumsum": _scan,
    "cumprod": _scan,
    "einsum": _einsum,
    "empty": _empty,
    "embedding": _embedding,
    "slice": _slice,
    **{
        f"{kind}{d}d_last": _channels_last
        for kind in ("conv", "conv_transpose", "depthwise", "max_pool", "avg_pool", "adaptive_avg_pool")
        for d in (2, 3)
    },
    **dict.fromkeys(("windows_max_last", "windows_avg_last"), _channels_last),
    **{f"depthwise{d}d": _depthwise for d in (1, 2, 3)},
    **dict.fromkeys(("channels_last", "channels_first"), _turned),
    "to": _to,
}
