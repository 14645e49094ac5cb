"""Which tensors can be judged: dense ones of plain numbers; any other is named in words."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import torch

KINDS = {"float", "bfloat", "complex", "int", "uint", "bool"}
LEAST_BITS = 8  # of an integer or float that torch can compute with
ONLY = "only dense tensors of plain numbers can be judged"


class Unjudgeable(TypeError):  # noqa: N818
    """What a problem gives cannot be judged; `words` say what it is, `place` is its number among the tensors."""

    def __init__(self, words: str, place: int) -> None:
        super().__init__(f"tensor {place} is {words}")
        self.words, self.place = words, place


def unlike(tensor: torch.Tensor) -> str | None:
    """In words, what a tensor is that is not dense, or not of plain numbers; None for one that can be judged."""
    name = str(tensor.layout).removeprefix("torch.").lstrip("_")
    if _is_lazy(tensor):
        return "a tensor that has no shape before the first call (of a Lazy module)"
    if tensor.is_nested:
        return f"a nested tensor (layout {name})"
    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return f"a {type(tensor).__name__}, which is no plain tensor"
    if tensor.is_meta:
        return "a meta tensor, which has no values"
    if tensor.is_quantized:
        return f"a quantized tensor ({str(tensor.dtype).removeprefix('torch.')})"
    if tensor.layout is not torch.strided:
        return f"a {'sparse tensor' if 'sparse' in name else 'tensor'} of layout {name}"
    if any(getattr(tensor, "names", ())):
        return "a tensor with named dimensions"
    return None if _plain(tensor.dtype) else f"a tensor of {tensor.dtype}"


def _is_lazy(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin)


def _plain(dtype: torch.dtype) -> bool:
    """Whether torch can at least convert numbers of a dtype."""
    name = str(dtype).removeprefix("torch.").partition("_")[0]
    kind = name.rstrip("0123456789")
    return kind in KINDS and int(name[len(kind) :] or LEAST_BITS) >= LEAST_BITS


def require_dense(named: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Raises Unjudgeable for a parameter or buffer of a model that cannot be judged."""
    for place, (name, tensor) in enumerate(named):
        if words := unlike(tensor):
            fault = Unjudgeable(words, place)
            remedy = (
                "give the layer its sizes" if _is_lazy(tensor) else "hold dense ones, and make it of them in forward"
            )
            fault.args = (f"Model holds `{name}` as {words}: {ONLY}; {remedy}",)
            raise fault


@contextlib.contextmanager
def named(giver: str, kind: str, remedy: str) -> Iterator[None]:
    """Inside, Unjudgeable becomes a whole sentence: who gives what, in which place, what to do."""
    try:
        yield
    except Unjudgeable as fault:
        sentence = f"{giver} gives {fault.words} as {kind} {fault.place}: {ONLY}; {remedy}"
        fault.args = (sentence,)
        raise
