"""The corpus's kernels that no template fills in, each against torch on a card (`-m gpu`)."""

from __future__ import annotations

import math
from typing import Any

import pytest

from rag.corpus_path import CORPUS
from tests.support.edits import edit
from tests.support.on_card import told

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("whole_architecture")]
torch = pytest.importorskip("torch")


FORMATS = {"bfloat16": 1.0, "float16": 1.0, "float8_e4m3fn": 1.0, "int8": 40.0}


def loaded(path: str, *edits: tuple[str, str]) -> Any:
    import tvm_ffi.cpp

    source = (CORPUS / "kernels" / path).read_text()
    for old, new in edits:
        source = edit(source, old, new)
    name = path.replace("/", "_").partition(".")[0]
    return tvm_ffi.cpp.load_inline(name, cuda_sources=source, functions=["run"], extra_cuda_cflags=["-O3"])


def only_on(major: int) -> None:
    if torch.cuda.get_device_capability()[0] != major:
        pytest.skip(f"made for compute capability {major}")


@pytest.mark.parametrize("path", ["gemm/level_01.cu", "gemm/level_04.cu"])
@pytest.mark.parametrize("k", [64, 128, 1024, 4096])
def test_a_ring_multiplies(path: str, k: int) -> None:
    only_on(9)
    kernel = loaded(path)
    a, b = (torch.randn(rows, k, device="cuda").bfloat16() for rows in (2048, 4096))
    out = torch.full((2048, 4096), float("nan"), device="cuda")
    kernel.run(a, b, out)
    torch.testing.assert_close(out, a.float() @ b.float().T, rtol=1e-3, atol=1e-2 * k**0.5)
    told(f"{path}, K {k}", lambda: kernel.run(a, b, out))


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("n", [64, 128, 256])
@pytest.mark.parametrize("k", [128, 1024])
def test_each_format_and_width_multiplies_and_has_its_rows_statistics(dtype: str, n: int, k: int) -> None:
    only_on(9)
    kernel = loaded("gemm/level_05.cu")
    a, b = ((torch.randn(rows, k, device="cuda") * FORMATS[dtype]).to(getattr(torch, dtype)) for rows in (512, n))
    out = torch.full((512, n), float("nan"), device="cuda")
    kernel.run(a, b, out, 0.25, 1e-5)
    product = (a.double() @ b.double().T) * 0.25
    wanted = product / (product.square().mean(dim=1, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(out, wanted.float(), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("size", [4, 4096, 10_000_000, 1 << 28])
def test_blocks_that_wait_for_one_another_give_the_same_bits_each_time(size: int) -> None:
    kernel = loaded("norm/level_03.cu")
    x = torch.randn(size, device="cuda")
    sums, counter = torch.empty(1024, device="cuda"), torch.zeros(1, dtype=torch.int64, device="cuda")
    outs = [torch.full_like(x, float("nan")) for _ in range(3)]
    for out in outs:
        kernel.run(x, out, sums, counter, 1e-6)
    torch.testing.assert_close(outs[0], x / (x.double().square().mean() + 1e-6).sqrt().float())
    assert all(torch.equal(outs[0], out) for out in outs)
    told(f"norm/level_03.cu, {size} floats", lambda: kernel.run(x, outs[0], sums, counter, 1e-6))


def room_for(shape: tuple[int, ...]) -> Any:
    """A flat tensor of 9.0, four longer than a result of this shape."""
    return torch.full((torch.Size(shape).numel() + 4,), 9.0, device="cuda")


@pytest.mark.parametrize("shape", [(1, 1, 3, 4), (2, 3, 7, 36), (3, 5, 33, 132), (2, 4, 42, 2048), (64, 128, 256, 512)])
def test_planes_are_convolved_depthwise(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    only_on(9)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    kernel = loaded("convolution/level_01.cu")
    images, channels, height, width = shape
    x, weight = torch.randn(shape, device="cuda"), torch.randn(channels, 1, 3, 3, device="cuda")
    bias = torch.randn(channels, device="cuda")
    room = room_for((images, channels, height - 2, width - 2))
    out = room[:-4].view(images, channels, height - 2, width - 2)
    kernel.run(x, weight, bias, out)
    torch.testing.assert_close(out, torch.nn.functional.conv2d(x, weight, bias, groups=channels), rtol=1e-5, atol=1e-5)
    assert bool((room[-4:] == 9.0).all()), "nothing is written behind the last row"
    told(f"convolution/level_01.cu, {shape}", lambda: kernel.run(x, weight, bias, out))


LEAKY = ("tail(float v) { return v; }", "tail(float v) { return v > 0.0f ? v : 0.01f * v; }")


@pytest.mark.parametrize("channels", [32, 64])
@pytest.mark.parametrize(
    ("images", "out_channels", "height", "width", "padding"),
    [(1, 64, 3, 3, 0), (1, 64, 1, 1, 1), (2, 64, 7, 33, 1), (5, 128, 61, 301, 0), (3, 192, 40, 510, 1)],
)
def test_a_ring_of_rows_convolves(
    channels: int, images: int, out_channels: int, height: int, width: int, padding: int
) -> None:
    only_on(9)
    kernel = loaded("convolution/level_02.cu", ("IN = 64, OUT = 64;", f"IN = {channels}, OUT = 64;"))
    out, wanted = convolved(kernel, (images, channels, height, width), out_channels, padding)
    torch.testing.assert_close(out, wanted, rtol=1e-4, atol=1e-3)


def test_a_convolution_has_its_tail_in_registers() -> None:
    only_on(9)
    kernel = loaded("convolution/level_02.cu", LEAKY)
    out, wanted = convolved(kernel, (64, 64, 256, 256), 64, 0)
    torch.testing.assert_close(out, torch.nn.functional.leaky_relu(wanted), rtol=1e-4, atol=1e-3)


def convolved(kernel: Any, shape: tuple[int, ...], out_channels: int, padding: int) -> tuple[Any, Any]:
    """What the kernel makes of random operands, and what float64 makes of them once rounded to float16."""
    images, channels, height, width = shape
    x, weight = torch.randn(shape, device="cuda"), torch.randn(out_channels, channels, 3, 3, device="cuda")
    bias = torch.randn(out_channels, device="cuda")
    size = (images, out_channels, height + 2 * padding - 2, width + 2 * padding - 2)
    room = room_for(size)
    out = room[:-4].view(size)
    kernel.run(x, weight, bias, out, padding)
    assert bool((room[-4:] == 9.0).all()), "nothing is written behind the last row"
    told(f"convolution/level_02.cu, {shape} to {out_channels}", lambda: kernel.run(x, weight, bias, out, padding))
    rounded = (x.half().double(), weight.half().double(), bias.double())
    return out, torch.nn.functional.conv2d(*rounded, padding=padding).float()


@pytest.mark.parametrize("cols", [1, 2, 3, 5, 33, 127, 4099])
def test_rows_of_odd_lengths_are_clamped_and_keep_nan(cols: int) -> None:
    kernel = loaded("pointwise/level_04.cu")
    wide = torch.randn(1000, cols + 3, device="cuda")
    wide[::7, cols // 2] = float("nan")
    for begin in range(3):
        x, room = wide[:, begin : begin + cols], torch.full((1000, cols + 1), 9.0, device="cuda")
        kernel.run(x, room[:, :cols], -0.5, 0.75)
        torch.testing.assert_close(room[:, :cols], x.clamp(-0.5, 0.75), rtol=0, atol=0, equal_nan=True)
        assert bool((room[:, cols] == 9.0).all()), "nothing is written beside a row"
    told(f"pointwise/level_04.cu, {cols} columns", lambda: kernel.run(x, room[:, :cols], -0.5, 0.75))


@pytest.mark.parametrize("rows", [1, 7, 5000])
@pytest.mark.parametrize("cols", [2048, 32768])
def test_rows_are_scanned_in_a_ring_of_bulk_copies(rows: int, cols: int) -> None:
    only_on(9)
    kernel = loaded("scan/level_03.cu")
    x = torch.rand(rows, cols, device="cuda")
    out = torch.full_like(x, float("nan"))
    kernel.run(x, out)
    torch.testing.assert_close(out, x.double().cumsum(dim=1).float(), rtol=1e-5, atol=1e-5)
    told(f"scan/level_03.cu, {rows} x {cols}", lambda: kernel.run(x, out))


@pytest.mark.parametrize(
    ("m", "n", "k", "size"),
    [(256, 256, 128, 1.0), (512, 768, 640, 1000.0), (2304, 4096, 1024, 1.0), (1024, 8192, 8192, 1.0)],
)
def test_a_float32_product_has_its_corrections_in_eight_bits(m: int, n: int, k: int, size: float) -> None:
    """The largest error of float16 alone is four times the tolerance; `size` of a is undone by its scale."""
    only_on(9)
    kernel = loaded("gemm/level_06.cu")
    a, b = torch.rand(m, k, device="cuda") * size, (torch.rand(n, k, device="cuda") * 2 - 1) / (size * k**0.5)
    bias = torch.randn(n, device="cuda")
    packed_a, packed_b = (torch.empty(x.numel() * 4, dtype=torch.uint8, device="cuda") for x in (a, b))
    out = torch.full((m, n), float("nan"), device="cuda")
    scale_a, scale_b = 2.0 ** -(math.log2(size) // 1), 2.0 ** (math.log2(size * k**0.5) // 1)

    def run() -> None:
        kernel.run(a, b, bias, packed_a, packed_b, out, scale_a, scale_b, 0.125, 1.5)

    run()
    wanted = ((a.double() @ b.double().T + bias.double() - 0.125) * 1.5).relu()
    torch.testing.assert_close(out, wanted.float(), rtol=0, atol=1e-4)
    told(f"gemm/level_06.cu, {m} x {n} x {k}", run)


@pytest.mark.parametrize(
    ("shape", "mean"),
    [((3, 5, 512, 512), 0.5), ((7, 384, 512), -1000.0), ((1, 70, 768, 512), 0.0), ((112, 64, 512, 512), 0.5)],
)
def test_a_cluster_normalizes_a_plane(shape: tuple[int, ...], mean: float) -> None:
    """Mean and values about 1000 are rounded by 2^-15 each; the variance has to lose nothing to them."""
    only_on(9)
    kernel = loaded("norm/level_04.cu")
    x = torch.rand(shape, device="cuda").add_(mean - 0.5)
    out = torch.full_like(x, float("nan"))
    kernel.run(x, out, 1e-5)
    for planes, made in zip(x.flatten(0, -3).split(256), out.flatten(0, -3).split(256), strict=True):
        wanted = torch.nn.functional.instance_norm(planes.double()[None])[0].float()
        torch.testing.assert_close(made, wanted, rtol=1e-5, atol=1e-5 + 1e-6 * abs(mean))
    told(f"norm/level_04.cu, {shape}", lambda: kernel.run(x, out, 1e-5))


@pytest.mark.parametrize("shape", [(3, 8, 1), (5, 4, 513), (300, 12, 33), (2, 1000, 4096), (128, 4096, 4095)])
def test_the_maximum_over_a_middle_axis_is_exact_and_keeps_nan(shape: tuple[int, int, int]) -> None:
    only_on(9)
    kernel = loaded("reduction/level_04.cu")
    x = torch.rand(shape, device="cuda")
    x[::2] -= 2.0
    x[0, :, 0] = float("-inf")
    x[-1, 3, -1] = -float("nan")
    out = torch.empty(shape[0], shape[2], device="cuda")
    kernel.run(x, out)
    torch.testing.assert_close(out, x.max(dim=1)[0], rtol=0, atol=0, equal_nan=True)
    told(f"reduction/level_04.cu, {shape}", lambda: kernel.run(x, out))
