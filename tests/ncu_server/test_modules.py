"""How both sides' models are made: alike, off their defaults, and so that they can be copied."""

import copy
import math
from collections.abc import Callable

import pytest
import torch

from ncu_server.worker.modules import build, observable_parameters


@pytest.mark.parametrize(
    ("make", "judged"),
    [
        (lambda n: [f"m = nn.Linear({n}, 1)", "m.again = m.bias"], "m.bias"),
        (lambda n: [f"m = nn.Linear({n}, 1)", "m = nn.ParameterList([m.bias])"], "m[0]"),
    ],
)
def test_a_lone_number_that_was_drawn_is_the_same_however_often_it_is_registered(
    make: Callable[[int], list[str]], judged: str
) -> None:
    first, again = {"nn": torch.nn}, {"nn": torch.nn}
    for names, lines in ((first, make(8)[:1]), (again, make(8))):
        torch.manual_seed(3)
        with observable_parameters():
            exec("\n".join(lines), names)
    assert torch.equal(eval("m.bias", first), eval(judged, again))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1,), (), (7,), (7, 1, 1)])
def test_a_constant_is_moved_off_its_value_once_and_by_the_number_of_its_elements_alone(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    with observable_parameters():
        flat, shaped = (torch.nn.Parameter(torch.ones(s, dtype=dtype)) for s in ((math.prod(shape),), shape))
        module = torch.nn.Module()
        for name, parameter in (("a", flat), ("b", shaped), ("c", flat)):
            module.register_parameter(name, parameter)
    assert int((flat == 1).sum()) <= len(flat) // 4
    assert torch.equal(flat, shaped.reshape(-1))


def test_a_model_that_computes_an_attribute_of_its_parameters_can_be_copied() -> None:
    class Normed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(4, 4))
            self.norms = self.weight.norm(dim=1)

    made = build(Normed, [], 3, "cpu")
    assert torch.equal(copy.deepcopy(made).norms, made.norms)
