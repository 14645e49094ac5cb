"""The templates' attention on a card (`-m gpu`): against float64, and its time beside PyTorch's."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_agent.proposers.templates.attention_tile import ranked
from kernel_agent.proposers.templates.graph import parse
from tests.kernel_agent.proposers.attentions.modules import FULL, MODULES, source
from tests.support.attentions import GRAPHS, LARGE, attention, written

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("whole_architecture")]
torch = pytest.importorskip("torch")


def made(name: str, **genes: str) -> tuple[Any, Any, list[Any]]:
    """A module, a candidate, and inputs of it."""
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("made for compute capability 9.0")
    problem, candidate = dict[str, Any](), dict[str, Any]()
    exec(source(name), problem)
    exec(written(name, **genes), candidate)
    return problem["Model"]().cuda(), candidate["ModelNew"]().cuda(), [x.cuda() for x in problem["get_inputs"]()]


def told(what: str, run: Any) -> None:
    """Print the microseconds of a call, the least of ten."""
    times = []
    for _ in range(10):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    print(f"{what}: {min(times):.1f} us")


@pytest.mark.parametrize("name", [name for name in MODULES if "float" not in name])
def test_attention_on_a_card_is_as_exact_as_float32(name: str) -> None:
    for tile in ranked(attention(parse(GRAPHS[name])).shape, "fp16x3"):
        model, ours, inputs = made(name, tile=tile)
        with torch.no_grad():
            wanted = model.double()(*(x.double() for x in inputs))
            got = ours(*inputs).double()
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("name", FULL)
def test_attention_of_full_size_is_as_exact_as_float32(name: str) -> None:
    for tile in ranked(attention(parse(LARGE[name])).shape, "fp16x3"):
        model, ours, inputs = made(name, tile=tile)
        with torch.no_grad():
            wanted, got = model(*inputs), ours(*inputs)
            off = float((got - wanted).abs().max() / wanted.square().mean().sqrt())
            print(f"{name}, {tile}: differs by {off:.1e}")
            assert off < 1e-4
            told(f"{name}, PyTorch", lambda: model(*inputs))  # noqa: B023
            told(f"{name}, {tile}", lambda: ours(*inputs))  # noqa: B023
