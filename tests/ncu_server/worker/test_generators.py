"""A draw of random numbers shows by where the generators stand, whether it changes a result or not."""

import random

import numpy as np
import pytest
import torch
from torch import nn

from ncu_server.worker.calls import Call
from ncu_server.worker.generators import trains

CALL: Call = ([torch.ones(4)], {})


class Skips(nn.Module):
    """Draws while it trains, and is hardly ever changed by it."""

    def __init__(self, draw: str) -> None:
        super().__init__()
        self.draw = {"torch": lambda: torch.rand(()).item(), "python": random.random, "numpy": np.random.uniform}[draw]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if self.training and self.draw() < 0 else x * 2


@pytest.mark.parametrize("draw", ["torch", "python", "numpy"])
def test_a_model_that_draws_while_it_trains_is_judged_in_eval_mode(draw: str) -> None:
    assert not trains(Skips(draw), [CALL])


def test_what_draws_nothing_stays_in_its_mode() -> None:
    assert trains(nn.BatchNorm1d(4), [([torch.ones(2, 4)], {})])
    assert not trains(nn.BatchNorm1d(4).eval(), [([torch.ones(2, 4)], {})])


def test_a_call_that_the_model_cannot_take_tells_nothing() -> None:
    assert trains(nn.Linear(4, 4), [([], {"y": torch.ones(4)})])
    assert not trains(nn.RReLU(), [([], {"y": torch.ones(4)}), ([-torch.ones(4)], {})])
