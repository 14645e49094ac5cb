"""What plans for a GPU hang on: the kernel that measures it assembles here, and is measured on a card (`-m gpu`)."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from ncu_server.worker.chip import Attribute, Launch, chip, source
from ncu_server.worker.timing.devices import Cpu, int8_rate

OFFSETS = """
#include <cstddef>
#include <cuda.h>
static_assert(sizeof(CUlaunchConfig) == %d && offsetof(CUlaunchConfig, hStream) == %d);
static_assert(offsetof(CUlaunchConfig, attrs) == %d && offsetof(CUlaunchConfig, numAttrs) == %d);
static_assert(sizeof(CUlaunchAttribute) == %d && offsetof(CUlaunchAttribute, value) == %d);
static_assert(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION == 4 && CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES == 8);
"""


def test_a_host_has_none_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert chip(Cpu()) == {"sms": None, "clusters": [], "latency_ns": None, "tensor_mhz": None}


def test_int8_is_as_fast_as_fp8_where_one_unit_does_both() -> None:
    assert int8_rate(949.0, 1454.0, (9, 0)) == 1454.0 and int8_rate(700.0, 660.0, (8, 9)) == 700.0
    assert int8_rate(949.0, 1454.0, (10, 3)) == 949.0
    assert int8_rate(600.0, None, (8, 0)) == 600.0 and int8_rate(None, 1454.0, (9, 0)) is None


@pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc")
@pytest.mark.parametrize(
    ("capability", "arch"), [((7, 5), "sm_75"), ((8, 6), "sm_86"), ((9, 0), "sm_90"), ((10, 0), "sm_100")]
)
def test_the_kernel_that_follows_pointers_assembles(capability: tuple[int, int], arch: str, tmp_path: Path) -> None:
    (tmp_path / "chase.ptx").write_text(source(capability))
    line = ["ptxas", f"-arch={arch}", "chase.ptx", "-o", "chase.cubin"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc")
def test_what_is_handed_to_the_driver_lies_as_its_header_says(tmp_path: Path) -> None:
    places = (Launch.stream.offset, Launch.attributes.offset, Launch.count.offset)
    sizes = (ctypes.sizeof(Launch), *places, ctypes.sizeof(Attribute), Attribute.value.offset)
    (tmp_path / "offsets.cu").write_text(OFFSETS % sizes)
    done = subprocess.run(["nvcc", "-std=c++17", "-c", "offsets.cu"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.gpu
def test_a_card_tells_all_of_it() -> None:
    from ncu_server.worker.timing.devices import Cuda

    found = chip(Cuda())
    assert found["sms"] and found["latency_ns"] and found["tensor_mhz"]
    assert 200 < found["latency_ns"] < 2000 and 400 < found["tensor_mhz"] < 3500
    for size, count in zip((2, 4, 8), found["clusters"], strict=False):
        assert 0 < size * count <= found["sms"]
