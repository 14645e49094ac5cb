"""Products of float32 matrices by each way of rules.ways, emulated: operands are rounded as tensor cores take them, and
sums are exact, so that what is left is what the operands' rounding errs."""

from __future__ import annotations

from collections.abc import Callable

import torch


def to(dtype: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
    """Rounds to a format that torch has, in float64."""
    return lambda x: x.float().to(dtype).double()


def tf32(x: torch.Tensor) -> torch.Tensor:
    """Rounds the mantissa to 10 bits, to nearest, ties away from zero as cvt.rna does."""
    bits = x.float().contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32).double()


def once(round_: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    return lambda a, b: round_(a) @ round_(b).T


def in_two(round_: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """hi hi + hi lo + lo hi."""

    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        (ah, al), (bh, bl) = ((h := round_(x), round_(x.double() - h)) for x in (a, b))
        return ah @ bh.T + ah @ bl.T + al @ bh.T

    return product


def corrected(a: torch.Tensor, b: torch.Tensor, first: bool = True) -> torch.Tensor:
    """A float16 product, and its corrections in e4m3, the low parts scaled by 2^12 into its range; of the second
    operand alone, or of the `first` too."""
    half, byte = to(torch.float16), to(torch.float8_e4m3fn)
    (ah, al), (bh, bl) = ((h := half(x), x.double() - h) for x in (a, b))

    def small(x: torch.Tensor) -> torch.Tensor:
        scale = 2.0 ** torch.floor(torch.log2(200 / x.abs().amax()))
        return byte(x * scale) / scale

    product = ah @ bh.T + small(ah) @ small(bl).T
    return product + small(al) @ small(bh).T if first else product


def digits(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """h h', h l', l h' of two signed digits of 8 bits, a scale for each row."""

    def cut(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        unit = x.double().abs().amax(1, keepdim=True) / (127 * 256)
        q = torch.round(x.double() / unit)
        high = torch.floor((q + 128) / 256)
        return high, q - 256 * high, unit

    (ah, al, ua), (bh, bl, ub) = cut(a), cut(b)
    return (65536 * ah @ bh.T + 256 * (ah @ bl.T + al @ bh.T)) * (ua * ub.T)


WAYS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "one bfloat16 product": once(to(torch.bfloat16)),
    "one float16 product": once(to(torch.float16)),
    "a float16 product, one fp8 correction": lambda a, b: corrected(a, b, first=False),
    "one TF32 product": once(tf32),
    "three int8 products of fixed-point digits": digits,
    "a float16 product, two fp8 corrections": corrected,
    "three bfloat16 products": in_two(to(torch.bfloat16)),
    "three TF32 products": in_two(tf32),
}
