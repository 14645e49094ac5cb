"""Secret inputs that are made anew at each use come out the same."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from ncu_server.judge.problems import Workshop
from ncu_server.sandbox.shared_memory import Shared
from ncu_server.worker.verbs import Identical

PROBLEM = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, scale):
        return torch.softmax(x, 1) * scale

def get_inputs():
    return [torch.randn(40, 64), 3]
"""


@pytest_asyncio.fixture
async def workshop(tmp_path: Path) -> AsyncIterator[Workshop]:
    made = Workshop(tmp_path)
    yield made
    made.close()


@pytest.mark.asyncio
async def test_a_recipe_makes_the_same_again(workshop: Workshop) -> None:
    async with workshop.problems.prepared(PROBLEM, workshop.machine.device("cpu")) as prepared:
        judge = await prepared.judge()
        known = [one for one in prepared.input_sets if one.made]
        assert {one.how for one in known} == {"as drawn", "sharper", "with another plain value"}
        for one in known:
            again = Shared("again")
            assert one.made and await prepared.make(one.made, again) == (
                "sharper" if one.how == "sharper" else "as drawn"
            )
            assert again.spec == one.inputs.spec
            assert await judge.ask(Identical(one.inputs.spec, again.spec), [one.inputs, again])
            again.close()


@pytest.mark.asyncio
async def test_inputs_of_the_host_stay(workshop: Workshop) -> None:
    """They are sealed, and lie there once for all processes."""
    async with workshop.problems.prepared(PROBLEM, workshop.machine.device("cpu")) as prepared:
        async with prepared.present(prepared.drawn) as drawn, prepared.lent(drawn) as lent:
            assert lent is drawn.inputs
        assert drawn.inputs.fd >= 0 and not drawn.inputs.on_device
