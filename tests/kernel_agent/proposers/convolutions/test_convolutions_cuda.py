"""The templates' convolutions on a card (`-m gpu`): against float64, and their time beside cuDNN's."""

from __future__ import annotations

import pytest

from kernel_agent.proposers.templates.convolution_tile import ranked
from kernel_agent.proposers.templates.graph import parse
from tests.kernel_agent.proposers.convolutions.modules import FULL, MODULES, full_source, source
from tests.support.convolutions import GRAPHS, LARGE, convolution, written
from tests.support.on_card import made, told

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("whole_architecture")]
torch = pytest.importorskip("torch")


@pytest.mark.parametrize("arithmetic", ["fp16", "bf16", "tf32"])
@pytest.mark.parametrize("name", MODULES)
def test_convolutions_of_small_integers_are_exact(name: str, arithmetic: str) -> None:
    shape = convolution(parse(GRAPHS[name])).shape
    for tile in ranked(shape, arithmetic):
        model, ours, inputs = made(source(name), written(name, arithmetic=arithmetic, tile=tile))
        with torch.no_grad():
            wanted = model.double()(*(x.double() for x in inputs))
            torch.testing.assert_close(ours(*inputs).double(), wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", FULL)
def test_kernelbenchs_convolutions_are_as_exact_as_tf32(name: str) -> None:
    for tile in ranked(convolution(parse(LARGE[name])).shape, "fp16"):
        model, ours, inputs = made(full_source(name), written(name, tile=tile))
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
