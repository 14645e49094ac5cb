"""What a call adds up: its longest reduction, and the products that torch may compute in less than float32."""

from __future__ import annotations

import math
from typing import Any

import torch

from ncu_server.rules.ways import Operand, Product
from ncu_server.worker import private

TorchDispatchMode = private.take("torch.utils._python_dispatch.TorchDispatchMode")
flop_registry = private.take("torch.utils.flop_counter.flop_registry")
tree_leaves = private.take("torch.utils._pytree.tree_leaves")

# By operator, how many elements of its first tensor make one of its output's.
SUMS = {
    "sum",
    "mean",
    "var",
    "std",
    "var_mean",
    "std_mean",
    "linalg_vector_norm",
    "norm",
    "nansum",
    "logsumexp",
    "trace",
}
SUMS |= {
    "mse_loss",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "nll_loss_forward",
    "binary_cross_entropy",
    "dot",
    "vdot",
}
SUMS |= {"avg_pool2d", "avg_pool3d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "mv"}
PLAIN_SUMS = {"sum": False, "mean": True}  # of terms as they stand, and whether divided by their number
# Those that go along a dimension, which their second argument names.
ALONG = {"cumsum", "logcumsumexp", "_softmax", "_log_softmax", "cumprod"}
# The products, by the switches that rule them.
PRODUCTS = {
    **dict.fromkeys(("convolution", "_convolution", "cudnn_convolution", "mkldnn_convolution"), "conv"),
    **dict.fromkeys(("convolution_overrideable", "slow_conv3d_forward", "_slow_conv2d_forward"), "conv"),
    **dict.fromkeys(("_cudnn_rnn", "mkldnn_rnn_layer", "miopen_rnn"), "rnn"),
    **dict.fromkeys(("mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "addbmm", "_addmm_activation"), "matmul"),
    **dict.fromkeys(("_scaled_dot_product_efficient_attention", "_scaled_dot_product_attention_math"), "matmul"),
}


FILTERS = ()  # a convolution's filters are rows that are summed whole, but for the first dimension
# Of products whose operands are known by their places: each one's, and the dimensions along which its rows are summed;
# nothing of a convolution's input, where windows overlap.
Along = int | tuple[int, ...] | None
OPERANDS: dict[str, tuple[tuple[int, Along], tuple[int, Along]]] = {
    **dict.fromkeys(("mm", "bmm"), ((0, -1), (1, -2))),
    **dict.fromkeys(("addmm", "baddbmm", "addbmm", "_addmm_activation"), ((1, -1), (2, -2))),
    **dict.fromkeys((name for name, kind in PRODUCTS.items() if kind == "conv"), ((0, None), (1, FILTERS))),
}


class Reductions(TorchDispatchMode):  # type: ignore[misc, valid-type]
    """Inside, `longest` becomes the most terms that an operator on floats adds up for one element, `mixed` how much
    they cancel (see rules.precision.sequential; 1 where it is not known), `products` the kinds of float32 products that
    run, `product` what is known of the one with most operations."""

    def __init__(self) -> None:
        super().__init__()
        self.longest, self.mixed = 1, 1.0
        self.products: set[str] = set()
        self.product: Product | None = None
        self._most = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing here is compiled; torch's own answer would import the compiler first, for seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        out = func(*args, **named)
        name = func.overloadpacket.__name__
        if (kind := PRODUCTS.get(name)) and any(t.dtype is torch.float32 for t in _tensors(args)[:1]):
            self.products.add(kind)
            self._look(func, name, args, named, out)
        made = _tensors(out)[:1]
        if made and made[0].is_floating_point() and made[0].numel():
            terms = _terms(func, name, args, named, out, made[0])
            if terms > self.longest:
                self.longest, self.mixed = terms, _mixed(name, terms, _tensors(args)[:1], made[0])
        return out

    def _look(self, func: Any, name: str, args: Any, named: dict[str, Any], out: Any) -> None:
        """Keep a product that has more operations than those before it."""
        count, places = flop_registry.get(func.overloadpacket), OPERANDS.get(name)
        made = next(iter(_tensors(out)), None)
        flops = count(*args, **named, out_val=out) if count and places and made is not None and made.numel() else 0
        if flops > self._most and places and made is not None:
            first, second = (_operand(args[place], along) for place, along in places)
            terms = max(int(flops // (2 * made.numel())), 1)
            mixed = terms * (first["rms"] * second["rms"] / (_rms(made) or 1.0)) ** 2
            self._most = flops
            known = all(math.isfinite(v) for v in (mixed, first["peak"], second["peak"]))
            self.product = {"terms": terms, "mixed": mixed, "operands": [first, second]} if known else None


def _operand(tensor: torch.Tensor, along: Along) -> Operand:
    """Its size, and how its rows' largest stand to it; read without a copy, as it may be gigabytes."""
    rms, largest = _rms(tensor), float(torch.linalg.vector_norm(tensor, math.inf))
    if along is None:
        return {"rms": rms, "largest": largest, "peak": largest / rms if rms else 1.0}
    tops = torch.linalg.vector_norm(tensor, math.inf, along or tuple(range(1, tensor.dim())))
    return {"rms": rms, "largest": largest, "peak": _rms(tops) / (rms or 1.0)}


def _rms(tensor: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor)) / math.sqrt(max(tensor.numel(), 1))


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _mixed(name: str, terms: int, given: list[torch.Tensor], made: torch.Tensor) -> float:
    """Length x the mean square of the terms over that of their sums."""
    if name not in PLAIN_SUMS or not given or not given[0].is_floating_point():
        return 1.0
    of_terms, of_sums = (float(torch.linalg.vector_norm(t)) / math.sqrt(t.numel()) for t in (given[0], made))
    size = of_sums * (terms if PLAIN_SUMS[name] else 1)
    found = terms * (of_terms / size) ** 2 if size else 1.0
    return found if math.isfinite(found) else 1.0


def _terms(func: Any, name: str, args: Any, named: dict[str, Any], out: Any, made: torch.Tensor) -> int:
    """How many terms of one sum an operator adds up for an element; 1 where it is not known to add any."""
    given, terms = next(iter(_tensors(args)), made), 1
    if count := flop_registry.get(func.overloadpacket):
        terms = count(*args, **named, out_val=out) // (2 * made.numel())
    elif name in SUMS:
        terms = given.numel() // made.numel()
    elif name in ALONG and given.dim():
        terms = given.shape[args[1]]
    elif name in ("native_layer_norm", "_fused_rms_norm"):
        terms = math.prod(args[1])
    elif name == "native_group_norm":
        terms = given.numel() // (given.shape[0] * args[6])
    elif "batch_norm" in name:
        terms = given.numel() // given.shape[1]
    return int(terms)
