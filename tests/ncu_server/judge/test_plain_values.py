"""Plain numbers and flags among inputs: found, replaced, varied within what they are."""

import random

import pytest
import torch

from ncu_server.judge.plain_values import Kept, change, kept_note, others, plain_values, replaced
from ncu_server.worker.checking.varied import differs, recorded, refused
from ncu_server.worker.tensors import flatten, unflatten

CALL = ([torch.ones(2), 0.5, [3, {"a": True}]], {"mode": "relu", "bias": None, "as": torch.float16})


def test_plain_values_are_found_by_position_by_keyword_and_inside_containers() -> None:
    found = plain_values(flatten(CALL)[0])
    assert [(one.name, one.value) for one in found] == [
        ("input 1", 0.5),
        ("input 2[0]", 3),
        ("input 2[1]['a']", True),
        ("input mode", "relu"),
        ("input bias", None),
        ("input as", "float16"),
    ]


def test_a_replaced_value_stands_where_the_other_stood_and_nothing_else_changes() -> None:
    structure, tensors = flatten(CALL)
    factor, _, flag, mode, *_ = plain_values(structure)
    args, kwargs = unflatten(replaced(structure, [(factor.path, 0.25), (flag.path, False), (mode.path, "t")]), tensors)
    assert (args[1:], kwargs) == ([0.25, [3, {"a": False}]], {"mode": "t", "bias": None, "as": torch.float16})
    assert unflatten(structure, tensors)[0][1] == 0.5


@pytest.mark.parametrize("value", [0.5, -2.0, 1e-5, -0.01, 3.0])
def test_a_float_is_scaled_and_keeps_its_sign(value: float) -> None:
    found = others(value, random.Random(3))
    assert len(found) >= 2 and all(float(one) * value > 0 and one != value for one in found)


def test_flags_are_flipped_ints_move_and_what_is_no_number_stays() -> None:
    generator = random.Random(3)
    assert others(True, generator) == [False] and others(3, generator) == [4, 2, 5]
    assert others(0.0, generator)[0] > 0
    assert [others(value, generator) for value in ("relu", None, float("inf"), float("nan"), 1 << 40)] == [[]] * 5


def test_what_was_changed_and_what_was_not_is_said_in_words() -> None:
    factor, count, *_ = plain_values(flatten(CALL)[0])
    assert change([(factor, 0.25)]) == "input 1, which the judge changed from 0.5 to 0.25"
    assert kept_note([Kept(count, "no number or flag")]).endswith("input 2[0] (3: no number or flag)")


X = torch.randn(4, 4, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("model", "value", "other", "why"),
    [
        (lambda n: X * n, 2, 3, ""),
        (lambda n: X**n, 2, 3, ""),
        (lambda n: sum(X for _ in range(n)), 2, 3, ""),
        (lambda n: torch.relu(X) if n else -X, True, False, ""),
        (lambda n: torch.softmax(X, n), 1, 0, "it chooses a dimension or a size"),
        (lambda n: X.reshape(n, -1).flip(0).reshape(4, 4), 2, 4, "it chooses a dimension or a size"),
        (lambda n: torch.roll(X, n, 0), 1, 2, "it chooses a dimension or a size"),
        (lambda n: X[:n], 2, 3, "others change the form of the output"),
        (lambda n: (X, X) if n else X, True, False, "others change the form of the output"),
        (lambda n: torch.log(X.abs() + n), 0.5, -9.0, "the reference gives no numbers with others"),
    ],
)
def test_a_number_is_told_from_a_size_by_what_torch_does_with_it(model, value, other, why) -> None:  # type: ignore[no-untyped-def]
    first, calls = recorded(lambda: model(value))
    out, those = recorded(lambda: model(other))
    assert refused(first, calls, out, those) == why
    assert bool(why) or differs(first, out)
