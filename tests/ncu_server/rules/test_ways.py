"""What each way to compute a product is predicted to err, against emulated and measured products."""

from __future__ import annotations

import math

import pytest
import torch

from ncu_server.rules.precision import Precision
from ncu_server.rules.ways import WAYS, Operand, Product, fits, predicted
from ncu_server.worker.checking.rounded import RoundedOperands, rounded
from tests.support.product_ways import WAYS as EMULATED

BY_NAME = {way.name: way for way in WAYS}
ROWS = 256


def operand(tensor: torch.Tensor) -> Operand:
    rms = float(tensor.square().mean().sqrt())
    tops = tensor.abs().amax(1).square().mean().sqrt()
    return {"rms": rms, "largest": float(tensor.abs().max()), "peak": float(tops) / rms}


def of(a: torch.Tensor, b: torch.Tensor) -> tuple[Product, Precision, torch.Tensor]:
    """A product of rows, what is behind its output where float32 makes it, and its exact values."""
    exact = a.double() @ b.double().T
    rms, own = float(exact.square().mean().sqrt()), float(((a @ b.T).double() - exact).abs().max())
    unit, terms = max(own, 2.0**-23 * rms), a.shape[1]
    one, other = operand(a), operand(b)
    product: Product = {
        "terms": terms,
        "mixed": terms * (one["rms"] * other["rms"] / rms) ** 2,
        "operands": [one, other],
    }
    output: Precision = {
        **{"dtype": "float32", "count": exact.numel(), "unit": unit, "rms": rms / unit, "ran": own / unit},
        **{"plain": 64.0, "allowed": 64.0, "most": rms / 4 / unit, "length": terms, "narrow": None},
    }  # type: ignore[typeddict-item]
    return product, output, exact


def drawn(kind: str, terms: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(terms)
    if kind == "normal":
        return torch.randn(ROWS, terms), torch.randn(ROWS, terms)
    if kind == "of one sign":
        return torch.rand(ROWS, terms), torch.rand(ROWS, terms)
    if kind == "a linear layer":
        return torch.rand(ROWS, terms), (2 * torch.rand(ROWS, terms) - 1) / math.sqrt(terms)
    rows = torch.tensor([1, 1 / 2, 1 / 4, 1 / 16])[torch.arange(ROWS) % 4, None]
    return torch.randn(ROWS, terms) * torch.rand(ROWS, terms) ** 2 * rows, torch.randn(ROWS, terms)


@pytest.mark.parametrize("terms", [256, 1024, 4096])
@pytest.mark.parametrize("kind", ["normal", "of one sign", "a linear layer", "hard"])
def test_what_a_way_is_predicted_to_err_is_what_it_errs(kind: str, terms: int) -> None:
    a, b = drawn(kind, terms)
    product, output, exact = of(a, b)
    for name, emulated in EMULATED.items():
        errs = float((emulated(a.double(), b.double()) - exact).abs().max()) / output["unit"]
        told = predicted(BY_NAME[name], product, output)
        if told > 8:  # of less, most is what adding up errs, which the emulation does exactly
            assert 0.4 <= told / errs <= 2.5, name
        assert errs < 2.5 * told, name


@pytest.mark.parametrize("kind", ["normal", "a linear layer", "hard", "signs"])
def test_what_is_made_of_the_sums_is_predicted_by_how_far_it_moves(kind: str) -> None:
    """A mean over rows of sums: errors of the first operand average out, and signs have none."""
    a, b = drawn("of one sign" if kind == "signs" else kind, 2048)
    b = (b - 0.5).sign() if kind == "signs" else b
    product, output, exact = of(a, b)
    mean = exact.mean(0)
    behind: Precision = {**output, "count": mean.numel(), "unit": 2.0**-23 * float(mean.square().mean().sqrt())}
    behind["rms"] = float(mean.square().mean().sqrt()) / behind["unit"]
    with RoundedOperands():
        moved = float(((a @ b.T).double().mean(0) - mean).abs().max())
    corrected = [] if kind == "signs" else ["a float16 product, two fp8 corrections"]
    for name in ("one float16 product", "one bfloat16 product", *corrected):
        errs = float((EMULATED[name](a.double(), b.double()).mean(0) - mean).abs().max()) / behind["unit"]
        assert 0.4 <= predicted(BY_NAME[name], product, behind, moved) / errs <= 2.5, name
        if kind == "signs":
            assert predicted(BY_NAME[name], product, behind) > 5 * errs, "relative errors do not stay as they were"


def test_numbers_of_eleven_bits_stay_and_others_are_rounded_to_nearest() -> None:
    whole = torch.tensor([0.0, 1.0, -3.0, 2.0**-100, 2047.0, 2048.0])
    assert torch.equal(rounded(whole), whole)
    assert torch.equal(rounded(torch.tensor([2049.0, 2051.0, -4097.0])), torch.tensor([2048.0, 2052.0, -4096.0]))
    x = torch.randn(1000)
    assert torch.equal(rounded(x), x.half().float())


def test_the_ways_of_the_corpus_s_page_stand_where_it_says() -> None:
    product, output, _ = of(*drawn("normal", 1024))
    told = {name: predicted(BY_NAME[name], product, output) for name in BY_NAME}
    assert 400 <= told["one TF32 product"] <= 1100  # a unit is what this processor's own product errs
    assert 3_200 <= told["one bfloat16 product"] <= 9_000
    assert 6 <= told["three bfloat16 products"] <= 16
    assert told["three TF32 products"] < 2


def test_the_linear_layer_of_the_search_s_runs_comes_out_as_it_measured() -> None:
    """relu(x W^T + b) of 1024 x 8192 times 8192 x 8192 on an H100: 5 to 8.6 units by int8 digits, 3.9 by float16 and
    fp8, 7 by bfloat16 parts (benchmarks/results/search.md); a unit is what cuBLAS's float32 errs there."""
    terms, rms = 8192, 0.33
    uniform: Operand = {"rms": 0.577, "largest": 1.0, "peak": 1.73}
    weights: Operand = {"rms": 0.577 / math.sqrt(terms), "largest": 1 / math.sqrt(terms), "peak": 1.73}
    product: Product = {"terms": terms, "mixed": 1.0, "operands": [uniform, weights]}
    unit = 3e-6
    output: Precision = {
        **{"dtype": "float32", "count": 1024 * 8192, "unit": unit, "rms": rms / unit, "ran": 1.0},
        **{"plain": 64.0, "allowed": 64.0, "most": rms / 4 / unit, "length": terms, "narrow": None},
    }  # type: ignore[typeddict-item]
    for name, measured in (
        ("three int8 products of fixed-point digits", 7.0),
        ("a float16 product, two fp8 corrections", 3.9),
        ("three bfloat16 products", 7.0),
    ):
        told = predicted(BY_NAME[name], product, output)
        assert 1 / 3 < told / measured < 3, (name, told)
        assert fits(told, 64.0) == "inside"
    assert fits(predicted(BY_NAME["one TF32 product"], product, output), 64.0) == "outside"


def test_float16_is_refused_where_values_are_out_of_its_range() -> None:
    product, output, _ = of(*drawn("normal", 256))
    large: Product = {**product, "operands": [{**product["operands"][0], "largest": 1e5}, product["operands"][1]]}
    assert predicted(BY_NAME["one float16 product"], large, output) == math.inf
    tiny: Product = {**product, "operands": [{**product["operands"][0], "rms": 1e-6}, product["operands"][1]]}
    assert predicted(BY_NAME["one float16 product"], tiny, output) > 10 * predicted(
        BY_NAME["one float16 product"], product, output
    )
    assert fits(math.inf, 64.0) == "outside"


def test_what_is_near_the_allowed_is_left_to_the_judge() -> None:
    assert [fits(error, 64.0) for error in (32.0, 33.0, 127.0, 129.0)] == ["inside", "near", "near", "outside"]
