"""How both sides' models are made: alike, and off their defaults."""

import math
from collections.abc import Callable

import pytest
import torch

from ncu_server.worker.building.modules import build, observable_parameters


@pytest.mark.parametrize(
    ("make", "judged"),
    [
        (lambda n: [f"m = nn.Linear({n}, 1)", "m.again = m.bias"], "m.bias"),
        (lambda n: [f"m = nn.Linear({n}, 1)", "m = nn.ParameterList([m.bias])"], "m[0]"),
    ],
)
def test_a_lone_drawn_number_is_the_same_however_often_registered(
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
def test_a_constant_is_moved_once_and_by_the_number_of_its_elements_alone(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    with observable_parameters():
        flat, shaped = (torch.nn.Parameter(torch.ones(s, dtype=dtype)) for s in ((math.prod(shape),), shape))
        module = torch.nn.Module()
        for name, parameter in (("a", flat), ("b", shaped), ("c", flat)):
            module.register_parameter(name, parameter)
    assert int((flat == 1).sum()) <= len(flat) // 4
    assert torch.equal(flat, shaped.reshape(-1))


def test_an_infinite_constant_stays_as_it_is() -> None:
    with observable_parameters():
        module = torch.nn.Module()
        module.register_parameter("low", torch.nn.Parameter(torch.full((3,), -torch.inf)))
    assert bool(torch.isneginf(module.low).all())


class Masked(torch.nn.Module):
    """Holds no module of dropout; what it freezes itself stays so."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = torch.nn.BatchNorm1d(4).eval()


@pytest.mark.parametrize("made", [Masked, lambda: torch.nn.Sequential(torch.nn.Dropout(0.5))])
@pytest.mark.parametrize("training", [True, False])
def test_a_model_gets_the_mode_of_the_one_it_stands_for(made: Callable[[], torch.nn.Module], training: bool) -> None:
    assert build(made, ([], {}, torch.float32), 7, "cpu", training).training is training


def test_a_model_in_the_right_mode_keeps_what_it_has_frozen() -> None:
    model = build(Masked, ([], {}, torch.float32), 7, "cpu", True)
    assert isinstance(model, Masked) and model.training and not model.frozen.training
