"""A corpus of three pages and one kernel, small enough to be embedded in a second."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PAGES = {
    "docs/coalescing.md": """---
id: coalescing
title: Coalesced access
archs: [sm_70+]
families: [pointwise]
bottlenecks: [dram-bw]
languages: [cuda]
signals: [l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum]
---
# Coalesced access
Neighbouring lanes read neighbouring words.

## Trap
Arrays of structs waste sectors.
""",
    "docs/wgmma.md": """---
id: wgmma
title: Warpgroup matrix multiply
archs: [sm_90a]
families: [gemm]
bottlenecks: [tensor]
languages: [cuda]
---
# Warpgroup matrix multiply
One hundred twenty-eight threads issue a matrix product whose operands lie in shared memory.
""",
    "docs/tcgen05.md": """---
id: tcgen05
title: Tensor memory matrix multiply
archs: [sm_100a]
families: [gemm]
bottlenecks: [tensor]
languages: [cuda]
---
# Tensor memory matrix multiply
A single thread issues a matrix product whose accumulators lie in tensor memory.
""",
    "kernels/softmax/level_01.cpp": """/* ---
id: softmax/level_01
title: Softmax of rows on the CPU
archs: [cpu]
families: [softmax]
bottlenecks: [dram-bw]
languages: [cpp]
--- */
// Threads take rows.
#include <cmath>

// The largest value of a row.
static float largest(const float* x, long n) {
  float top = x[0];
  for (long i = 1; i < n; ++i) { top = x[i] > top ? x[i] : top; }
  return top;
}

extern "C" void softmax(const float* x, float* y, long rows, long cols) {
  for (long r = 0; r < rows; ++r) { y[r] = largest(x + r * cols, cols); }
}
""",
}


def _write(root: Path) -> Path:
    for name, text in PAGES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture(scope="session")
def write_corpus() -> Callable[[Path], Path]:
    """Writes the corpus below a directory and returns it."""
    return _write


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return _write(tmp_path / "corpus")


@pytest.fixture(scope="session")
def python() -> Callable[[str], list[str]]:
    """The command that runs a piece of Python in a fresh process which can import rag."""
    return lambda code: [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"]
