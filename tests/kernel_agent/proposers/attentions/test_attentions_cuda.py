"""The templates' attention on a card (`-m gpu`): against float64, and its time beside PyTorch's."""

from __future__ import annotations

import pytest

from kernel_agent.proposers.templates.attention_tile import ranked
from kernel_agent.proposers.templates.graph import parse
from tests.kernel_agent.proposers.attentions.modules import FULL, MODULES, source
from tests.support.attentions import GRAPHS, LARGE, attention, written
from tests.support.on_card import made, told

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("whole_architecture")]
torch = pytest.importorskip("torch")


@pytest.mark.parametrize("name", [name for name in MODULES if "float" not in name])
def test_attention_on_a_card_is_as_exact_as_float32(name: str) -> None:
    for tile in ranked(attention(parse(GRAPHS[name])).shape, "fp16x3"):
        model, ours, inputs = made(source(name), written(name, tile=tile))
        with torch.no_grad():
            wanted = model.double()(*(x.double() for x in inputs))
            got = ours(*inputs).double()
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("name", FULL)
def test_attention_of_full_size_is_as_exact_as_float32(name: str) -> None:
    for tile in ranked(attention(parse(LARGE[name])).shape, "fp16x3"):
        model, ours, inputs = made(source(name), written(name, tile=tile))
        with torch.no_grad():
            wanted, got = model(*inputs), ours(*inputs)
            off = float((got - wanted).abs().max() / wanted.square().mean().sqrt())
            print(f"{name}, {tile}: differs by {off:.1e}")
            assert off < 1e-4
            told(f"{name}, PyTorch", lambda: model(*inputs))  # noqa: B023
            told(f"{name}, {tile}", lambda: ours(*inputs))  # noqa: B023
