"""The reference in full float32: without TF32, without bfloat16 inside of float32 products, without autocast.

Only a trusted process does so, and never around what is timed.
"""

from __future__ import annotations

import contextlib
import operator
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from ncu_server.rules.precision import Name, coarsest
from ncu_server.rules.ways import Product
from ncu_server.worker.tracing.reductions import Reductions

# torch.backends' holders of a switch `fp32_precision`; one that is "none" asks the one above it, so those come first.
HOLDERS = (
    "",
    "cudnn",
    "mkldnn",
    "cuda.matmul",
    "cudnn.conv",
    "cudnn.rnn",
    "mkldnn.matmul",
    "mkldnn.conv",
    "mkldnn.rnn",
)
RULES = {
    "cuda": {"conv": "cudnn.conv", "rnn": "cudnn.rnn", "matmul": "cuda.matmul"},
    "cpu": {"conv": "mkldnn.conv", "rnn": "mkldnn.rnn", "matmul": "mkldnn.matmul"},
}
"""By device, the holder that rules each kind of product of tracing.reductions."""
NARROW: dict[str, Name] = {"tf32": "tf32", "bf16": "bf16"}
HALF: dict[torch.dtype, Name] = {torch.bfloat16: "bf16", torch.float16: "fp16"}
KINDS = ("cuda", "cpu")  # of devices, for which autocast is switched one by one


@dataclass(frozen=True, slots=True)
class Switches:
    """All switches as they are set: `own` by holder, "none" where it asks the one above; those of torch before 2.9 too,
    None where they cannot be asked since the newer ones say more than they can."""

    own: dict[str, str]
    cudnn_tf32: bool | None
    matmul: str | None

    @classmethod
    def read(cls) -> Switches:
        """What is set now."""
        held = cls.switch_off()
        held.restore()
        return held

    @classmethod
    def switch_off(cls) -> Switches:
        """Leave float32 products no other arithmetic; what was set before.

        A holder that is "none" answers for the one above: each is asked while those above are "none".
        """
        with _quiet():
            cudnn_tf32, matmul = _old(lambda: torch.backends.cudnn.allow_tf32), _old(torch.get_float32_matmul_precision)
            own = {}
            for name in HOLDERS:
                own[name] = _holder(name).fp32_precision
                _holder(name).fp32_precision = "none"
            if cudnn_tf32 is not None:
                torch.backends.cudnn.allow_tf32 = False
            if matmul is not None:
                torch.set_float32_matmul_precision("highest")
            for name in HOLDERS:
                _holder(name).fp32_precision = "ieee"
        return cls(own, cudnn_tf32, matmul)

    def restore(self) -> None:
        """Set all as they were: the older ones first, since they write the newer ones too, and the topmost last, since
        torch 2.13 writes it where mkldnn's is set."""
        with _quiet():
            if self.cudnn_tf32 is not None:
                torch.backends.cudnn.allow_tf32 = self.cudnn_tf32
            if self.matmul is not None:
                torch.set_float32_matmul_precision(self.matmul)
            for name in reversed(HOLDERS):
                _holder(name).fp32_precision = self.own[name]


class Watch:
    """What shows how exact a call of the reference is: the `length` of its longest reduction, how `mixed` its terms
    are (see precision.sequential), the `narrow` arithmetic that it may take for products, by its switches or by
    autocast, and the float32 `product` with most operations; None where there is none."""

    def __init__(self, device: str) -> None:
        self.length, self.mixed = 1, 1.0
        self.narrow: Name | None = None
        self.product: Product | None = None
        self._device = device

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, a call is watched."""
        reductions = Reductions()
        with _autocasts() as halves, reductions:
            yield
        self.length, self.mixed, self.product = reductions.longest, reductions.mixed, reductions.product
        found = [HALF[dtype] for dtype in halves if dtype in HALF]
        rules = RULES[self._device]
        found += [NARROW[set_] for kind in reductions.products if (set_ := _effective(rules[kind])) in NARROW]
        self.narrow = coarsest(found) if found else None


@contextlib.contextmanager
def full_float32() -> Iterator[list[bool]]:
    """Inside, float32 products are full, whatever the switches say, and autocast does nothing.

    What is given becomes [True] at the end where nobody has moved a switch meanwhile, as a model's own code may.
    """
    held = Switches.switch_off()
    full: list[bool] = []
    try:
        with contextlib.ExitStack() as stack:
            for kind in KINDS:
                stack.enter_context(torch.autocast(kind, enabled=False))
            stack.enter_context(_replaced("__enter__", lambda self: self))
            stack.enter_context(_replaced("__exit__", lambda self, *fault: None))
            yield full
            full.append(all(_effective(name) == "ieee" for name in HOLDERS))
    finally:
        held.restore()


@contextlib.contextmanager
def _autocasts() -> Iterator[set[torch.dtype]]:
    """The dtypes that autocast takes inside, as far as it is entered there or on already."""
    seen: set[torch.dtype] = set()
    enter = torch.autocast.__enter__

    def look() -> None:
        seen.update(torch.get_autocast_dtype(kind) for kind in KINDS if torch.is_autocast_enabled(kind))

    def entered(self: Any) -> Any:
        given = enter(self)
        look()
        return given

    look()
    with _replaced("__enter__", entered):
        yield seen


@contextlib.contextmanager
def _replaced(name: str, by: Any) -> Iterator[None]:
    """A method of torch.autocast, which its subclasses call, replaced."""
    held = getattr(torch.autocast, name)
    setattr(torch.autocast, name, by)
    try:
        yield
    finally:
        setattr(torch.autocast, name, held)


def _holder(name: str) -> Any:
    return operator.attrgetter(name)(torch.backends) if name else torch.backends


def _effective(name: str) -> str:
    return str(_holder(name).fp32_precision)


def _old(ask: Any) -> Any:
    """What an older switch says; None where it cannot say all that the newer ones do, which torch raises for."""
    try:
        return ask()
    except RuntimeError:
        return None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's warnings that the older switches are old."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
