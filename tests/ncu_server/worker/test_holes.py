"""NaN shows in an output only where every way in which kernels compare it gives the same."""

from collections.abc import Callable

import pytest
import torch

from ncu_server.worker.checking.holes import shows
from ncu_server.worker.timing.input_sets import holed

GENERATOR = torch.Generator().manual_seed(5)
DRAWN = torch.randn(16, 32, generator=GENERATOR)
(HOLED,) = holed([DRAWN], GENERATOR)


@pytest.mark.parametrize(
    ("model", "must"),
    [
        (lambda x: torch.softmax(x, 1).mean(1), True),
        (lambda x: (x - x) * 1e-3, True),
        (lambda x: x * 1e-42, True),
        (lambda x: torch.isnan(x), True),
        (lambda x: torch.nn.functional.layer_norm(x, (32,)) * 0, True),
        (lambda x: torch.relu(x - 12), False),
        (lambda x: torch.clamp(torch.minimum(torch.nn.functional.layer_norm(x, (32,)), torch.zeros(())), min=0), False),
        (lambda x: torch.nn.functional.relu_(x - 12), False),
        (lambda x: torch.where(x > 50, x, 0.0), False),
        (lambda x: x > 50, False),
        (lambda x: torch.sign(x.abs() + 1), False),
        (lambda x: torch.argmax(x * 0, 1), False),
        (lambda x: torch.nn.functional.max_pool1d(x[None], 2) * 0, False),
        (lambda x: (x.abs() + 1).int() * 0, False),
        (lambda x: torch.ones(4), False),
    ],
)
def test_nan_has_to_show_where_the_reference_computes_and_not_where_it_chooses(
    model: Callable[[torch.Tensor], torch.Tensor], must: bool
) -> None:
    assert shows(lambda inputs: model(inputs.clone()), DRAWN, HOLED) is must
