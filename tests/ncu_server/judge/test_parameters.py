"""A candidate's parameters count by their values, wherever and in whatever form it keeps them."""

import copy

import pytest
import torch

from ncu_server.worker.checking.parameters import Difference, differences, take, tensors_of


def layers() -> torch.nn.Sequential:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 8, bias=False))


REFERENCE = tensors_of(layers())["own"]
W, B, V = REFERENCE.values()


def found(own: dict[str, torch.Tensor], kept: dict[str, torch.Tensor] | None = None) -> list[Difference]:
    return differences(REFERENCE, own, kept or {}, [])


@pytest.mark.parametrize(
    ("own", "kept"),
    [
        (dict(REFERENCE), {}),
        ({"a": W, "b": B, "c": V}, {}),
        ({}, {"w": W.t().contiguous(), "b": B[None], "v": V.reshape(-1)}),
        ({"packed": torch.cat([W.reshape(-1), B, V.reshape(-1), torch.zeros(3)])}, {}),
        ({"w": W.bfloat16(), "b": B.bfloat16()}, {"v": V.half()}),
        ({"upper": W[:2], "lower": W[2:], "b": B, "v": V}, {}),
    ],
    ids=["the same", "other names", "turned", "packed into one", "in half precision", "in parts"],
)
def test_the_same_values_are_no_difference(own: dict[str, torch.Tensor], kept: dict[str, torch.Tensor]) -> None:
    assert found(own, kept) == []


def test_other_values_are_told_with_what_stands_for_them() -> None:
    other = torch.randn(4, 8, generator=torch.Generator().manual_seed(1))
    assert found(dict(REFERENCE) | {"0.weight": other}) == [{"name": "0.weight", "other": "0.weight", "named": True}]
    assert found({"w": other, "b": B, "v": V}) == [{"name": "0.weight", "other": "w", "named": False}]
    assert found({"w": other.t().contiguous(), "b": B, "1.weight": V})[0]["other"] == "w"
    assert found({"0.weight": W, "1.weight": V}) == [{"name": "0.bias", "other": None, "named": False}]


def test_what_calls_change_is_not_compared() -> None:
    assert differences(REFERENCE, {"0.weight": W, "1.weight": V}, {}, ["0.bias"]) == []


def test_a_model_takes_the_values_that_differ_and_a_number_for_what_is_missing() -> None:
    model, other = copy.deepcopy(layers()), torch.ones(8, 4)
    each: list[Difference] = [
        {"name": "0.weight", "other": "w", "named": False},
        {"name": "0.bias", "other": None, "named": False},
    ]
    take(model, each, {"w": other}, 0.0)
    assert torch.equal(model[0].weight, other.t()) and not model[0].bias.any() and torch.equal(model[1].weight, V)


def test_tensors_that_a_module_only_keeps_are_held_too() -> None:
    model = layers()
    model[1].packed = W.t()
    assert list(tensors_of(model)["kept"]) == ["1.packed"]
