"""The templates' recurrent networks on a card (`-m gpu`): against float64, in graphs, and their time beside cuDNN's."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_agent.proposers.templates.graph import parse
from kernel_agent.proposers.templates.recurrent_tile import ranked
from tests.kernel_agent.proposers.recurrent.modules import FULL, MODULES, full_source, source
from tests.support.on_card import made, told
from tests.support.recurrent import GRAPHS, H200, LARGE, recurrent, written

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("whole_architecture")]
torch = pytest.importorskip("torch")


def listed(answer: Any) -> list[Any]:
    return [answer] if isinstance(answer, torch.Tensor) else list(answer)


@pytest.mark.parametrize("name", MODULES)
def test_small_networks_equal_float64(name: str) -> None:
    for tile in list(ranked(recurrent(parse(GRAPHS[name])).shape, H200))[:6]:
        model, ours, inputs = made(source(name), written(GRAPHS, name, tile))
        with torch.no_grad():
            wanted = listed(model.cpu().double()(*(x.cpu().double() for x in inputs)))
            for got, exact in zip(listed(ours(*inputs)), wanted, strict=True):
                torch.testing.assert_close(got.cpu().double(), exact, rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("name", FULL)
def test_networks_of_kernelbenchs_size_are_exact_and_timed(name: str) -> None:
    for tile in list(ranked(recurrent(parse(LARGE[name])).shape, H200))[:4]:
        model, ours, inputs = made(full_source(name), written(LARGE, name, tile))
        with torch.no_grad():
            with torch.backends.cudnn.flags(enabled=False):
                wanted = model.double()(*(x.double() for x in inputs))
            model.float()
            torch.testing.assert_close(ours(*inputs).double(), wanted, rtol=1e-4, atol=1e-5)
            told(f"{name}, cuDNN", lambda: model(*inputs))  # noqa: B023
            told(f"{name}, {tile}", lambda: ours(*inputs))  # noqa: B023


@pytest.mark.parametrize("name", ["lstm", "gru_both"])
def test_calls_and_replays_of_a_graph_know_nothing_of_each_other(name: str) -> None:
    _, ours, inputs = made(full_source(name), written(LARGE, name))
    others = [torch.randn_like(x) for x in inputs]
    with torch.no_grad():
        first, second = ours(*inputs), ours(*others)
        places = [x.clone() for x in inputs]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            replayed = ours(*places)
        for given, wanted in ((inputs, first), (others, second), (inputs, first)):
            for place, x in zip(places, given, strict=True):
                place.copy_(x)
            graph.replay()
            assert torch.equal(replayed, wanted)
