"""The templates' convolutions on a card (`-m gpu`): against float64, and their time beside cuDNN's."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_agent.proposers.templates.convolution_tile import ranked
from kernel_agent.proposers.templates.graph import parse
from tests.kernel_agent.proposers.convolutions.modules import FULL, MODULES, full_source, source
from tests.support.convolutions import GRAPHS, LARGE, convolution, written

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("whole_architecture")]
torch = pytest.importorskip("torch")


def made(name: str, **genes: str) -> tuple[Any, Any, list[Any]]:
    """A module, a candidate with its parameters, and inputs of it."""
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("made for compute capability 9.0")
    problem, candidate = dict[str, Any](), dict[str, Any]()
    exec(source(name) if name in MODULES else full_source(name), problem)
    exec(written(name, **genes), candidate)
    model, ours = problem["Model"]().cuda(), candidate["ModelNew"]().cuda()
    ours.load_state_dict(model.state_dict())
    return model, ours, [x.cuda() for x in problem["get_inputs"]()]


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


@pytest.mark.parametrize("arithmetic", ["fp16", "bf16", "tf32"])
@pytest.mark.parametrize("name", MODULES)
def test_convolutions_of_small_integers_are_exact(name: str, arithmetic: str) -> None:
    shape = convolution(parse(GRAPHS[name])).shape
    for tile in ranked(shape, arithmetic):
        model, ours, inputs = made(name, arithmetic=arithmetic, tile=tile)
        with torch.no_grad():
            wanted = model.double()(*(x.double() for x in inputs))
            torch.testing.assert_close(ours(*inputs).double(), wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", FULL)
def test_kernelbenchs_convolutions_are_as_exact_as_tf32(name: str) -> None:
    for tile in ranked(convolution(parse(LARGE[name])).shape, "fp16"):
        model, ours, inputs = made(name, tile=tile)
        with torch.no_grad():
            with torch.backends.cudnn.flags(allow_tf32=False):
                wanted = model(*inputs)
            rms = wanted.square().mean().sqrt()
            off = {
                what: float((run(*inputs) - wanted).abs().max() / rms)
                for what, run in (("TF32", model), ("ours", ours))
            }
            print(f"{name}, {tile}: error {off['ours']:.1e}, cuDNN's {off['TF32']:.1e}")
            assert off["ours"] < 4 * off["TF32"] + 1e-3
            told(f"{name}, cuDNN", lambda: model(*inputs))  # noqa: B023
            told(f"{name}, {tile}", lambda: ours(*inputs))  # noqa: B023
