"""The error budget of an output: by the size of its elements, whatever stands beside them."""

import math

import numpy
import pytest
import torch

from ncu_server.rules import precision
from ncu_server.rules.comparison import BOUND
from ncu_server.worker import comparer
from ncu_server.worker.checking import tolerance

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(7))


def worst(exact: torch.Tensor, have: torch.Tensor, dtype: torch.dtype) -> float:
    """The largest error in units where the reference rounds the exact values to `dtype`."""
    return float(tolerance.errors(exact, have, tolerance.units(exact.to(dtype), exact)).max())


@pytest.mark.parametrize("dtype", DTYPES)
def test_rounding_once_passes_at_every_size(dtype: torch.dtype) -> None:
    outputs = (noise(4096), torch.exp(2 * noise(4096)), torch.cat([noise(999), 1e4 * noise(99)]), noise(1), noise(8, 0))
    for exact in outputs:
        units = tolerance.units(exact.to(dtype), exact)
        assert bool((tolerance.errors(exact, exact.to(dtype).double(), units) <= BOUND / 4).all())


@pytest.mark.parametrize("dtype", DTYPES[1:])
@pytest.mark.parametrize(("scale", "share"), [(1e-3, 0.5), (1e-3, 0.95), (1e-6, 0.05), (1e-9, 0.5)])
def test_zeros_for_the_small_part_of_an_output_fail(dtype: torch.dtype, scale: float, share: float) -> None:
    exact = noise(1 << 16)
    small = torch.rand(len(exact), generator=torch.Generator().manual_seed(1)) < share
    exact[small] *= max(scale, 2 * torch.finfo(dtype).tiny)
    assert worst(exact, torch.where(small, 0.0, exact), dtype) > BOUND
    assert worst(exact, torch.where(small, 1.7 * exact, exact), dtype) > BOUND


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_step_of_a_staircase_counts(dtype: torch.dtype) -> None:
    steps = [1e8 / 1e4**n for n in range(5)]
    exact = torch.cat([noise(4096) * step for step in steps])
    for n in range(5):
        have = exact.clone()
        have[4096 * n : 4096 * (n + 1)] = 0
        assert worst(exact, have, dtype) > BOUND


def test_the_rounding_of_an_element_far_above_the_others_is_measured_by_itself() -> None:
    exact = torch.cat([noise(1 << 16), torch.tensor([1e8], dtype=torch.float64)])
    have = exact.clone()
    have[-1] *= 1 + 2.0**-21
    assert worst(exact, have, torch.float32) < BOUND
    have[-1] *= 1 + 2.0**-11
    assert worst(exact, have, torch.float32) > BOUND


def test_a_part_in_half_precision_fails_beside_a_large_one() -> None:
    exact = torch.cat([noise(1 << 12) * 1e6, noise(1 << 12)])
    assert worst(exact, torch.cat([exact[: 1 << 12], exact[1 << 12 :].half().double()]), torch.float32) > BOUND


def test_noise_of_additions_around_zero_passes() -> None:
    a, b = noise(256, 1024).float(), noise(1024, 256).float()
    exact = a.double() @ b.double()
    units = tolerance.units(a @ b, exact)
    assert units is not None and len(units["levels"]) == 1
    other = sum(a[:, i : i + 64] @ b[i : i + 64] for i in range(0, 1024, 64))
    assert float(tolerance.errors(exact, other, units).max()) < 8


def test_zeros_keep_to_the_whole() -> None:
    exact = torch.cat([torch.zeros(99, dtype=torch.float64), 1e-9 * noise(99).abs(), noise(999).abs()])
    have = torch.where(exact == 0, 1e-7, exact)
    assert worst(exact, have, torch.float32) < BOUND


def test_a_number_of_too_large_a_part_is_infinitely_far_off() -> None:
    exact = torch.tensor([1.0, math.inf, math.nan], dtype=torch.float64)
    units = tolerance.units(exact.float(), exact)
    have = torch.tensor([1.0, 1e30, 0.0], dtype=torch.float64)
    assert tolerance.errors(exact, have, units).isinf().tolist() == [False, True, True]
    assert float(tolerance.errors(exact, exact, units).max()) == 0


def test_zeros_for_a_few_small_rows_fail() -> None:
    exact = noise(400, 512)
    exact[:396] *= 1e7
    have = exact.clone()
    have[396:] = 0
    assert worst(exact, have, torch.float32) > BOUND


def test_what_is_small_by_cancellation_beside_small_rows_is_held_to_the_whole() -> None:
    exact = noise(1000, 512)
    exact[500:] *= 1e-6
    exact[:5, 0] = 1e-6
    have = exact.clone()
    have[:5, 0] = 1e-6 * exact[5:10, 0]  # off by what rounds the large ones
    units = tolerance.units(exact.float(), exact)
    assert float(tolerance.errors(exact, have, units).max()) > BOUND
    assert comparer._compare(exact, have.reshape(-1), units, BOUND)["outside"] == 0
    have[500:510] = 0
    assert comparer._compare(exact, have.reshape(-1), units, BOUND)["outside"] > 5000


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_numbers_whose_squares_no_float64_holds_have_units_of_their_size(scale: float) -> None:
    exact = scale * noise(1 << 12)
    assert worst(exact, torch.zeros_like(exact), torch.float64) > BOUND
    assert worst(exact, exact.float().double() if scale < 1 else exact * (1 + 1e-7), torch.float64) > BOUND
    assert worst(exact, exact * (1 + 2.0**-52), torch.float64) < BOUND


def test_float64_may_be_added_up_in_another_order_and_not_in_float32() -> None:
    exact = noise(1 << 12).cumsum(0)
    units = tolerance.units(exact, exact)
    blocks = torch.cat([exact[:64], (exact[63] + (exact[64:] - exact[63]))])
    assert float(tolerance.errors(exact, blocks + 500 * 2.0**-52 * exact, units).max()) < BOUND
    assert float(tolerance.errors(exact, exact.float().double(), units).max()) > BOUND


def cut(x: torch.Tensor, bits: int) -> torch.Tensor:
    """Rounded to what is left of a float32's mantissa without these bits."""
    return ((x.view(torch.int32) + (1 << (bits - 1))) & -(1 << bits)).view(torch.float32)


def float8(x: torch.Tensor) -> torch.Tensor:
    scale = 448 / x.abs().max()
    return (x * scale).to(torch.float8_e4m3fn).float() / scale


FORMATS = {"tf32": lambda x: cut(x, 13), "fp16": lambda x: x.half(), "bf16": lambda x: x.bfloat16(), "fp8": float8}


def found(exact: torch.Tensor, have: torch.Tensor, run: tolerance.Run) -> tuple[bool, str | None]:
    """Whether it passes, and what it is worthy of."""
    made = tolerance.budget(run)
    assert made is not None
    units, behind = made
    share = float(tolerance.errors(exact, have.double(), units).max())
    return share <= BOUND, precision.worthy(share * behind["allowed"] / BOUND, behind)


@pytest.mark.parametrize("inner", [288, 4096])
@pytest.mark.parametrize("name", FORMATS)
def test_operands_as_narrow_as_the_reference_s_pass_and_no_narrower(name: str, inner: int) -> None:
    a, b = noise(128, inner).float(), noise(inner, 128).float().flip(1)
    exact, full, narrow = a.double() @ b.double(), a @ b, cut(a, 13) @ cut(b, 13)
    have = FORMATS[name](a).double() @ FORMATS[name](b).double()
    worth = "tf32" if name == "fp16" else name
    assert found(exact, have, tolerance.Run(full, exact, None, inner)) == (False, worth)
    tf32 = tolerance.Run(narrow, exact, full, inner, 1.0, "tf32")
    assert found(exact, have, tf32) == (name in ("tf32", "fp16"), worth)
    assert found(exact, full, tf32) == (True, "float32")
    bf16 = tolerance.Run(a.bfloat16().float() @ b.bfloat16().float(), exact, full, inner, 1.0, "bf16")
    assert found(exact, have, bf16) == (name != "fp8", worth)


@pytest.mark.parametrize("name", ["tf32", "fp16", "bf16"])
def test_a_long_sum_may_be_a_plain_loop_and_not_of_rounded_terms(name: str) -> None:
    x = noise(16, 1 << 17).float()
    exact, got = x.double().sum(1), x.sum(1)
    run = tolerance.Run(got, exact, None, 1 << 17)
    loop = torch.from_numpy(numpy.add.accumulate(x.numpy(), axis=1)[:, -1])
    assert found(exact, loop, run) == (True, "float32")
    assert not found(exact, FORMATS[name](x).double().sum(1), run)[0]


def test_a_long_sum_of_one_sign_may_err_what_a_plain_loop_does() -> None:
    x = noise(64, 1 << 17).float().abs()
    exact, got = x.double().sum(1), x.sum(1)
    loop = torch.from_numpy(numpy.add.accumulate(x.numpy(), axis=1)[:, -1])
    assert found(exact, loop, tolerance.Run(got, exact, None, 1 << 17, 0.0)) == (True, "float32")
    assert not found(exact, loop, tolerance.Run(got, exact))[0], "no long sum was traced"


def test_no_sum_widens_what_is_allowed_more_than_fourfold() -> None:
    x = noise(64)
    made = tolerance.budget(tolerance.Run(x.float(), x, None, 1 << 40))
    assert made is not None and made[1]["allowed"] == pytest.approx(4 * BOUND)
