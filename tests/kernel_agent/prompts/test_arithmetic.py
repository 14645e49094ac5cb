"""What a prompt says of precision is what the description says of the problem's reference."""

from dataclasses import replace
from typing import Any

import pytest

from kernel_agent.page.facts import _limit_rate
from kernel_agent.page.words import baselines
from kernel_agent.prompts import render
from kernel_agent.prompts.advice import chosen, rules
from kernel_agent.prompts.brief import facts
from kernel_agent.run.brief import Brief
from kernel_agent.run.measured import Chip
from kernel_agent.run.precision import ErrorUnit, Way
from kernel_agent.run.types import Problem, Trial
from tests.support.scripted_run import DESCRIPTION

NO_CHIP = Chip()
OUTSIDE = "stand at hundreds to thousands"
PRODUCT = "y = torch.matmul(x, w)"
WAYS = (
    Way("one TF32 product", 1103.4, "outside", 300.0),
    Way("three int8 products of fixed-point digits", 41.0, "near", 300.0),
    Way("three bfloat16 products", 7.25, "inside", 450.0),
    Way("float32 on the FMA units", 1.0, "inside", 2400.0),
    Way("one float16 product", None, "outside", None),
)
UNITS = (ErrorUnit("output 0", "as drawn", 3e-6, 0.33, 1.0, 64.0), ErrorUnit("output 0", "hard", 1e-6, 0.1, 1.0, 64.0))


def asked(
    arithmetic: str | None, target: str = "cuda", source: str = PRODUCT, chip: Chip = NO_CHIP, **known: Any
) -> str:
    """Both parts that speak of precision, and how it is written."""
    peaks = {"tf32_tflops": 400.0, "fp8_tflops": None}
    device = replace(DESCRIPTION.device, target=target, arch="sm_90", peaks=peaks, chip=chip)
    description = replace(DESCRIPTION, arithmetic=arithmetic, graph=None, device=device, **known)
    brief = Brief(Problem("p", source, target), description, 1, Trial(None, 0, 0, None, "pass"), None, None)
    return "".join(render(name, **facts(brief)) for name in ("contract", "problem", f"target_{target}"))


@pytest.mark.parametrize("arithmetic", ["float32", None])
def test_of_a_full_float32_reference_narrow_operands_are_said_to_fail(arithmetic: str | None) -> None:
    assert OUTSIDE in asked(arithmetic)
    assert OUTSIDE not in asked(arithmetic, source="y = torch.relu(x)"), "there is no product"
    assert "does not allow TF32" in asked(arithmetic, "triton")


@pytest.mark.parametrize("arithmetic", ["tf32", "bf16", "fp16"])
def test_of_a_narrow_reference_operands_as_narrow_are_said_to_pass(arithmetic: str) -> None:
    assert OUTSIDE not in asked(arithmetic)
    assert "fp8" in asked(arithmetic) and "here the budget allows TF32" in asked(arithmetic, "triton")


def test_of_several_outputs_the_errors_of_each_are_told() -> None:
    two = (UNITS[0], replace(UNITS[0], output="buffer mean"))
    ways = [replace(way, errors={"output 0": way.error, "buffer mean": 0.5}) for way in WAYS]
    text = asked("float32", ways=ways, precision=two, limit_us=300.0)
    assert "| limit | units of output 0 | units of buffer mean |\n| --- | --- | --- | --- | --- | --- |\n" in text
    assert "| three bfloat16 products | 7.2 | yes | 450 us | 7.2 | 0.5 |\n" in text
    assert "| one float16 product | out of range | no | not known | out of range | 0.5 |\n" in text
    assert "units of" not in asked("float32", ways=WAYS, precision=two, limit_us=300.0), "a run of before"


def test_a_product_s_contract_is_told_in_its_own_numbers() -> None:
    text = asked("float32", ways=WAYS, precision=UNITS, limit_us=300.0)
    for words in (
        "Torch computes them in full float32.",
        "output 0 on inputs as drawn: one unit is 3e-06, 9.1e-06 of its rms 0.33; the reference errs 1 units",
        "output 0 on hard inputs: one unit is 1e-06, 1e-05 of its rms 0.1",
        "| one TF32 product | 1,103 | no | 300 us |",
        "| three int8 products of fixed-point digits | 41 | near | 300 us |",
        "| three bfloat16 products | 7.2 | yes | 450 us |",
        "| one float16 product | out of range | no | not known |",
        "limit: 450.0 us, by three bfloat16 products, the fastest way that is inside",
        "the bytes alone would take 3.3 us",
        "measured TFLOP/s of products: 400 TF32.",
    ):
        assert words in text
    assert OUTSIDE not in text, "what the table says needs no rule of thumb"
    assert "cuDNN's default" in asked("tf32", ways=WAYS, precision=UNITS)


def test_of_an_output_of_zeros_no_unit_is_told() -> None:
    zeros = (ErrorUnit("output 0", "as drawn", 1.8e-40, 0.0, 0.0, 64.0), UNITS[1])
    text = asked("float32", ways=WAYS, precision=zeros)
    assert "- output 0 on inputs as drawn is zero everywhere, and has to be\n" in text and "e-40" not in text


def test_where_the_bytes_decide_no_way_to_multiply_is_listed() -> None:
    chip = Chip(sms=132, clusters=(66, 30, 15), tensor_mhz=1500.0)
    ways = tuple(replace(way, limit_us=300.0) for way in WAYS)
    text = asked("float32", ways=ways, precision=UNITS, limit_us=300.0, moving_us=299.0, chip=chip)
    assert "300.0 us, the bytes at the measured rates; the products take no longer by float32 on the FMA units" in text
    assert "under a load of the tensor cores" not in text
    assert "Ways to compute" not in text and "fastest way that is inside" not in text and OUTSIDE in text
    slow = asked("float32", ways=WAYS, precision=UNITS, limit_us=300.0, moving_us=450.0, chip=chip)
    assert "under a load of the tensor cores: 1,500 MHz" in slow
    assert "the products take no longer by three bfloat16 products" in slow
    assert "| float32 on the FMA units | 1 | yes | 2,400 us |" in slow, "one that is inside takes longer"


def test_the_output_that_decides_on_ways_is_named() -> None:
    two = (*UNITS, ErrorUnit("buffer mean", "hard", 1e-9, 0.1, 1.0, 64.0))
    held = tuple(replace(way, output="buffer mean", inputs="hard") for way in WAYS)
    assert "; on all of them buffer mean on hard inputs decides." in asked("float32", ways=held, precision=two)
    assert "decides" not in asked("float32", ways=held, precision=UNITS), "there is but one output"
    mixed = asked("float32", ways=(replace(held[0], output="output 0"), *held[1:]), precision=two)
    assert "| one TF32 product | 1,103 of output 0 on hard inputs | no |" in mixed
    assert "| three bfloat16 products | 7.2 of buffer mean on hard inputs | yes |" in mixed


def test_a_time_below_what_the_bytes_take_is_told_plainly() -> None:
    text = asked("float32", source="y = torch.relu(x)", limit_us=200.0, moving_us=200.0)
    assert "[99.0, 101.0], faster than the bytes at the measured rates" in text
    assert "limit: 200.0 us, the bytes at the measured rates; no bound here: torch.compile passes it" in text
    held = asked("float32", source="y = torch.relu(x)", limit_us=5.0, moving_us=5.0)
    assert "no bound" not in held and "5 % of the limit reached" in held


def test_nothing_of_products_is_told_where_there_is_none() -> None:
    text = asked("float32", source="y = torch.relu(x)", precision=UNITS)
    assert "one unit is" not in text and "Ways to compute" not in text and "TFLOP/s" not in text


def test_shares_of_the_limit_are_of_the_fastest_admissible_way() -> None:
    known = replace(DESCRIPTION, ways=WAYS, limit_us=300.0)
    assert known.admissible is not None and known.admissible.name == "three bfloat16 products"
    assert known.reached(900.0) == 0.5
    assert baselines(known).endswith("limit 0.45 ms"), "the terminal names the same limit"
    assert _limit_rate(known) == "by three bfloat16 products", "and so does the page"
    assert _limit_rate(replace(known, ways=(), limit_rate="a rate")) == "a rate"
    assert replace(known, ways=()).reached(900.0) == pytest.approx(1 / 3)


def test_advice_on_products_is_the_same_whatever_the_arithmetic() -> None:
    full, narrow = (" ".join(chosen(rules(), ["convolution"], "cuda", one)) for one in ("float32", "tf32"))
    assert "Beating cuBLAS" in full and full == narrow
