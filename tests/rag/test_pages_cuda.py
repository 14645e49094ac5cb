"""What the kernels of pages that code prompts carry compute, on a card (`-m gpu`)."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rag.corpus_path import CORPUS

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("whole_architecture")]
torch = pytest.importorskip("torch")


FENCE = re.compile(r"^```cuda\n(.*?)^```", re.MULTILINE | re.DOTALL)
HEAD = """
template <class T> T* at(const tvm::ffi::TensorView& x) { return static_cast<T*>(x.data_ptr()); }
inline cudaStream_t stream(const tvm::ffi::TensorView& x) {
  return static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDLCUDA, x.device().device_id));
}
using View = tvm::ffi::TensorView;
"""


def loaded(page: str, run: str) -> Any:
    """The page's first kernel behind a function `run` that launches it."""
    import tvm_ffi.cpp

    if torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("made for compute capability 9")
    found = FENCE.search((CORPUS / "docs" / f"{page}.md").read_text())
    assert found is not None
    name = f"page_{page.replace('-', '_')}"
    return tvm_ffi.cpp.load_inline(name, cuda_sources=f"{found[1]}{HEAD}{run}", functions=["run"])


@pytest.mark.parametrize("k", [64, 1024])
def test_wgmma_multiplies_from_tiles_with_and_without_a_swizzle(k: int) -> None:
    kernel = loaded(
        "wgmma-hopper",
        """void run(View a, View b, View out) {
          const int m = a.size(0), k = a.size(1), n = b.size(0);
          using T = __nv_bfloat16;
          gemm<<<dim3(n / 256, m / 64), 128, 0, stream(out)>>>(at<T>(a), at<T>(b), at<float>(out), n, k);
        }""",
    )
    a, b = (torch.randn(rows, k, device="cuda").bfloat16() for rows in (192, 512))
    out = torch.full((192, 512), float("nan"), device="cuda")
    kernel.run(a, b, out)
    torch.testing.assert_close(out, a.float() @ b.float().T, rtol=1e-3, atol=1e-2 * k**0.5)


@pytest.mark.parametrize("tiles", [1, 11, 132 * 12 + 5, 132 * 40])
def test_a_ring_of_bulk_copies_refills_behind_its_stores(tiles: int) -> None:
    kernel = loaded(
        "bulk-copy",
        """void run(View x, View y, double a) {
          const int bytes = S * TILE * 4;
          cudaFuncSetAttribute(scaled, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
          scaled<<<132, 256, bytes, stream(y)>>>(at<float>(x), at<float>(y), x.numel() / TILE, a);
        }""",
    )
    x = torch.randn(tiles * 4096, device="cuda")
    y = torch.full_like(x, float("nan"))
    kernel.run(x, y, 3.0)
    torch.testing.assert_close(y, x * 3, rtol=0, atol=0)


@pytest.mark.parametrize("cols", [2048, 262144])
def test_a_cluster_normalises_a_row_by_sums_pushed_to_its_peers(cols: int) -> None:
    kernel = loaded(
        "clusters-dsmem",
        """void run(View x, View y) {
          const int cols = x.size(1), bytes = cols / 2;
          cudaFuncSetAttribute(normalize_rows, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
          normalize_rows<<<8 * x.size(0), 256, bytes, stream(y)>>>(at<float>(x), at<float>(y), cols);
        }""",
    )
    x = torch.rand(100, cols, device="cuda")
    y = torch.full_like(x, float("nan"))
    kernel.run(x, y)
    torch.testing.assert_close(y, (x / x.double().sum(dim=1, keepdim=True)).float(), rtol=1e-4, atol=0)


def test_rows_stream_through_a_ring_of_own_places() -> None:
    kernel = loaded(
        "cp-async-pipeline",
        """void run(View x, View y) {
          cudaFuncSetAttribute(center_rows<256, 4, 12>, cudaFuncAttributeMaxDynamicSharedMemorySize, 12 * 256 * 16);
          center_rows<256, 4, 12><<<66, 256, 12 * 256 * 16, stream(y)>>>(at<float4>(x), at<float4>(y), x.size(0));
        }""",
    )
    x = torch.randn(1000, 4096, device="cuda")
    y = torch.full_like(x, float("nan"))
    kernel.run(x, y)
    torch.testing.assert_close(y, x - x.mean(dim=1, keepdim=True), rtol=1e-4, atol=1e-5)


def test_a_producer_warp_feeds_a_matrix_times_a_vector() -> None:
    kernel = loaded(
        "warp-specialization",
        """void run(View a, View x, View y) {
          cudaFuncSetAttribute(gemv, cudaFuncAttributeMaxDynamicSharedMemorySize, S * SEG * 4);
          gemv<<<132, 160, S * SEG * 4, stream(y)>>>(at<float>(a), at<float>(x), at<float>(y), a.size(0), a.size(1));
        }""",
    )
    a, x = torch.randn(1001, 8192, device="cuda"), torch.randn(8192, device="cuda")
    y = torch.full((1001,), float("nan"), device="cuda")
    kernel.run(a, x, y)
    torch.testing.assert_close(y, (a.double() @ x.double()).float(), rtol=1e-4, atol=1e-2)
