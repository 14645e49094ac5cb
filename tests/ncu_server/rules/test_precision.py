"""What is allowed of an error, and which arithmetic it is worthy of."""

from typing import get_args

import pytest

from ncu_server.rules import precision
from ncu_server.rules.precision import Exactness, Precision, coarsest, joined, widened, worthy
from ncu_server.wire import evaluation

FLOAT32: Precision = {
    "dtype": "float32",
    "count": 1 << 20,
    "unit": 2.0**-20,
    "rms": 2.0**20,
    "ran": 0.9,
    "plain": 64.0,
    "allowed": 64.0,
    "most": 2.0**18,
    "length": 576,
    "narrow": None,
}
TF32: Precision = {**FLOAT32, "ran": 800.0, "allowed": 3200.0, "narrow": "tf32"}


@pytest.mark.parametrize(
    ("error", "behind", "name"),
    [
        (0.3, FLOAT32, "float32"),
        (64.0, FLOAT32, "float32"),
        (900.0, FLOAT32, "tf32"),
        (8000.0, FLOAT32, "bf16"),
        (100_000.0, FLOAT32, "fp8"),
        (2.0**20, FLOAT32, None),
        (16.0, TF32, "float32"),
        (3200.0, TF32, "tf32"),
        (6800.0, TF32, "bf16"),
        (94_400.0, TF32, "fp8"),
        (60.0, {**FLOAT32, "dtype": "bfloat16"}, "bf16"),
        (60.0, {**FLOAT32, "dtype": "float8_e4m3fn"}, "fp8"),
        (100.0, {**FLOAT32, "plain": 256.0}, "float32"),
    ],
)
def test_an_error_is_worthy_of_the_finest_arithmetic_that_errs_so(
    error: float, behind: Precision, name: str | None
) -> None:
    assert worthy(error, behind) == name


def test_all_input_sets_together_say_what_the_reference_errs() -> None:
    lucky = {**TF32, "ran": 300.0, "allowed": 1200.0}
    assert widened(lucky, [lucky, TF32])["allowed"] == 3200
    assert widened({**lucky, "most": 2000.0}, [lucky, TF32])["allowed"] == 2000
    assert widened(TF32, [lucky, TF32]) == TF32
    assert widened(FLOAT32, [FLOAT32])["allowed"] == 64


def test_of_few_elements_the_length_of_the_product_says_what_tf32_errs() -> None:
    few = {**TF32, "count": 4, "ran": 100.0, "allowed": 400.0}
    told = widened(few, [few, few])
    expected = precision.rounded(precision.BY_NAME["tf32"], 576, 8) * few["rms"]
    assert told["ran"] == pytest.approx(expected) and told["allowed"] == pytest.approx(4 * expected)
    assert 3 * 100 < expected < TF32["rms"] / 500
    full = {**few, "ran": 3.0, "allowed": 64.0}
    assert widened(full, [full])["allowed"] == 64, "nothing narrow shows"


def test_the_reference_s_arithmetic_shows_in_its_error() -> None:
    assert precision.of_reference(TF32) == "tf32"
    assert precision.of_reference({**TF32, "ran": 2.0}) == "float32"
    assert precision.of_reference(FLOAT32) == "float32"


def test_the_worst_share_and_the_coarsest_arithmetic_stand_for_all() -> None:
    found = joined([Exactness(900.0, 3200.0, "tf32"), Exactness(50.0, 64.0, "float32"), Exactness(0.0, 64.0, "exact")])
    assert found == Exactness(50.0, 64.0, "tf32")
    assert found is not None and found.sentence == "The kernel is as exact as TF32, or float16 operands."
    assert joined([]) is None and coarsest(["fp8", None]) is None


@pytest.mark.parametrize(("length", "mixed", "low", "high"), [(65536, 0.0, 80, 240), (65536, 1.0, 200, 400)])
def test_a_loop_over_a_long_sum_errs_tens_of_epsilons(length: int, mixed: float, low: float, high: float) -> None:
    assert low < precision.sequential(length, 16, mixed) * 2.0**23 < high


def test_the_names_on_the_wire_are_those_of_the_table() -> None:
    assert get_args(precision.Name) == get_args(evaluation.Arithmetic) == tuple(precision.BY_NAME)
