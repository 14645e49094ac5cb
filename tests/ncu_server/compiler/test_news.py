"""What a compiler says against a kernel before it runs."""

import shutil
import subprocess
from pathlib import Path

import pytest

from ncu_server.compiler.news import SPILLED_BYTES, bad_news

WORDS = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z4rowsPf' for 'sm_90a'
ptxas info    : Function properties for _Z4rowsPf
    {stack} bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 1024 bytes smem
ptxas info    : Compile time = 12.000 ms
"""
SERIALIZED = (
    "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to "
    "insufficient register resources for the wgmma pipeline in the function '_Z4rowsPf'\n"
)


def test_spills_and_serialized_wgmma_are_bad_news_and_little_else() -> None:
    told = bad_news(SERIALIZED + WORDS.format(stack=256, stores=512, loads=640))
    assert len(told) == 2 and "insufficient register resources" in told[0]
    assert told[1] == "_Z4rowsPf: 255 registers a thread and 512 bytes of spill stores, 640 bytes of spill loads"
    assert bad_news(WORDS.format(stack=8, stores=SPILLED_BYTES // 2 - 4, loads=SPILLED_BYTES // 2)) == []
    assert bad_news("") == [] and bad_news("ninja: no work to do.") == []


def test_the_same_news_of_many_instances_is_cut() -> None:
    assert len(bad_news(SERIALIZED * 50)) == 1
    many = "".join(WORDS.replace("_Z4rowsPf", f"_Z4rows{n}").format(stack=1, stores=512, loads=0) for n in range(50))
    assert 0 < len(bad_news(many)) < 10


@pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc")
def test_what_ptxas_says_of_a_kernel_that_spills_is_understood(tmp_path: Path) -> None:
    sums = " ".join(f"v[{n}] = fmaf(v[{n}], x[{n}], v[{(n + 7) % 96}]);" for n in range(96))
    (tmp_path / "spills.cu").write_text(
        "__global__ void __launch_bounds__(1024, 2) held(float* x) {\n  float v[96];\n#pragma unroll\n"
        "  for (int i = 0; i < 96; ++i) v[i] = x[i * 1024 + threadIdx.x];\n"
        f"  for (int i = 0; i < 100; ++i) {{ {sums} }}\n#pragma unroll\n"
        "  for (int i = 0; i < 96; ++i) x[i * 1024 + threadIdx.x] = v[i];\n}\n"
    )
    line = ["nvcc", "-gencode", "arch=compute_90a,code=sm_90a", "-cubin", "-Xptxas=-v", "spills.cu"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [told] = bad_news(done.stdout + done.stderr)
    assert told.startswith("_Z4heldPf: 32 registers a thread") and "bytes of spill stores" in told
