"""What a prompt says of precision is what the description says of the problem's reference."""

from dataclasses import replace

import pytest

from kernel_agent.prompts import render
from kernel_agent.prompts.advice import chosen, rules
from kernel_agent.prompts.brief import facts
from kernel_agent.run.brief import Brief
from kernel_agent.run.types import Problem, Trial
from tests.support.scripted_run import DESCRIPTION

OUTSIDE = "stand at hundreds to thousands"


def contract(arithmetic: str | None, target: str = "cuda") -> str:
    known = replace(DESCRIPTION, arithmetic=arithmetic)
    brief = Brief(Problem("p", "pass", target), known, 1, Trial(None, 0, 0, None, "pass"), None, None)
    return render(f"target_{target}", **facts(brief))


@pytest.mark.parametrize("arithmetic", ["float32", None])
def test_of_a_full_float32_reference_narrow_operands_are_said_to_fail(arithmetic: str | None) -> None:
    assert OUTSIDE in contract(arithmetic)
    assert "does not allow TF32" in contract(arithmetic, "triton")


@pytest.mark.parametrize("arithmetic", ["tf32", "bf16", "fp16"])
def test_of_a_narrow_reference_operands_as_narrow_are_said_to_pass(arithmetic: str) -> None:
    assert OUTSIDE not in contract(arithmetic)
    assert "fp8" in contract(arithmetic) and "here the budget allows TF32" in contract(arithmetic, "triton")


def test_advice_on_products_goes_by_the_reference_s_arithmetic() -> None:
    full, narrow = (" ".join(chosen(rules(), ["convolution"], "cuda", one)) for one in ("float32", "tf32"))
    assert "far outside the error budget" in full and "Split operands" in full
    assert "far outside" not in narrow and "gain nothing" in narrow
    assert "Beating cuBLAS" in full and "Beating cuBLAS" in narrow
