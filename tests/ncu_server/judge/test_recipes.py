"""Secret inputs that are made anew at each use come out the same."""

from pathlib import Path

import pytest

from ncu_server.errors import Refusal
from ncu_server.judge.problems import Workshop
from ncu_server.sandbox.shared_memory import Shared
from ncu_server.worker.verbs import Identical
from tests.support.edits import edit

PROBLEM = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, scale):
        return torch.softmax(x, 1) * scale

def get_inputs():
    return [torch.randn(40, 64), 3]
"""


@pytest.mark.asyncio(loop_scope="session")
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


@pytest.mark.asyncio(loop_scope="session")
async def test_what_could_not_be_made_again_is_made_at_the_next_use(workshop: Workshop, tmp_path: Path) -> None:
    """As where memory ran out: empty memory in its place would make every kernel wrong."""
    lacking = tmp_path / "lacking"
    fails = f'import os\n    assert not os.path.exists("{lacking}"), "no room"\n    return [torch'
    source = edit(PROBLEM, "return [torch", fails)
    async with workshop.problems.prepared(source, workshop.machine.device("cpu")) as prepared:
        drawn = prepared.drawn
        drawn.inputs.close()
        drawn.expected.close()
        lacking.touch()
        for use in (prepared.present, prepared.known):
            with pytest.raises(Refusal, match="no room"):
                async with use(drawn):
                    pass
        lacking.unlink()
        async with prepared.known(drawn), prepared.present(drawn):
            assert drawn.inputs.freeze() >= drawn.inputs.spec["bytes"] > 1
            assert drawn.expected.freeze() >= drawn.expected.spec["bytes"] > 1


@pytest.mark.asyncio(loop_scope="session")
async def test_inputs_of_the_host_stay(workshop: Workshop) -> None:
    """They are sealed, and lie there once for all processes."""
    async with workshop.problems.prepared(PROBLEM, workshop.machine.device("cpu")) as prepared:
        async with prepared.present(prepared.drawn) as drawn, prepared.lent(drawn) as lent:
            assert lent is drawn.inputs
        assert drawn.inputs.fd >= 0 and not drawn.inputs.on_device
