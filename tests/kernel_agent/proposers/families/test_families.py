"""Families of kernels: each is right on what PyTorch says of its operators, takes its neighbours in, and compiles."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from kernel_agent.proposers.regions.partition import cut
from kernel_agent.proposers.regions.plan import Kernel
from kernel_agent.proposers.regions.rewrite import rewritten
from kernel_agent.proposers.regions.works import work_of
from kernel_agent.proposers.templates.graph import parse
from kernel_agent.run.types import Device
from tests.kernel_agent.proposers.families.modules import MODULES, source
from tests.support.emitted import compiled_by_nvcc, judged, on_cpu

GRAPHS: dict[str, Any] = json.loads((Path(__file__).parent / "graphs.json").read_text())
CPU = Device("cpu", "a processor", "x86_64-avx2", 2, 20.0)
GPU = Device("cuda", "a GPU", "sm_90", 0, 2600.0)
QUICK = ("pool_in_a_chain", "scan_in_a_chain", "place_in_a_chain", "lookup_in_a_chain", "cross_entropy")
SLOW = [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in MODULES]


def written(name: str, device: Device, start: int = 0) -> str:
    work = work_of(GRAPHS[name], device)
    return work.write(source(name), work.space.starts[start % len(work.space.starts)])


def steps(name: str, device: Device = GPU) -> list[str]:
    """What computes in a module's plan: a kernel's operators joined by `+`, a call of PyTorch in brackets."""
    plan = cut(parse(GRAPHS[name]), bias=True, long_rows=device is GPU)
    found = []
    for step in plan.steps:
        if not isinstance(step, Kernel) and step.name not in plan.reasons:
            continue
        ops = [plan.node(n).op.split(".")[1] for n in (step.nodes if isinstance(step, Kernel) else (step.name,))]
        found.append("+".join(ops) if isinstance(step, Kernel) else f"[{ops[0]}]")
    return found


@pytest.mark.parametrize("name", SLOW)
def test_cpp_kernels_equal_pytorch(tmp_path: Path, name: str) -> None:
    assert judged(name, source(name), written(name, CPU, list(MODULES).index(name)), tmp_path) == {}


@pytest.mark.long
@pytest.mark.parametrize("name", MODULES)
def test_cuda_kernels_equal_pytorch_when_threads_are_emulated(tmp_path: Path, name: str) -> None:
    assert judged(name, source(name), on_cpu(written(name, GPU)), tmp_path) == {}


@pytest.mark.long
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("name", MODULES)
def test_cuda_kernels_compile_without_spills(tmp_path: Path, name: str) -> None:
    file = tmp_path / "kernels.cu"
    file.write_text(re.search(r'_source = r"""\n(.*?)"""', written(name, GPU, 1), re.DOTALL)[1])  # type: ignore[index]
    said = compiled_by_nvcc(file, "sm_90a")
    assert set(re.findall(r"\d+ bytes spill stores", said)) == {"0 bytes spill stores"}


def test_a_pooling_takes_what_stands_before_and_behind_it_into_its_kernel() -> None:
    assert steps("pool_in_a_chain") == ["add+max_pool2d+relu+sigmoid+mul"]


def test_a_pooling_with_one_window_is_a_mean_or_a_maximum() -> None:
    assert steps("pools_1d")[-1] == "amax"
    assert steps("pools_2d")[-1] == "mean"


def test_a_scan_takes_what_stands_before_and_behind_it_into_its_kernel() -> None:
    assert steps("scan_in_a_chain") == ["gt+mul+cumsum+mul+tanh+mul"]


def test_a_scan_backwards_or_without_its_own_element_is_one_kernel() -> None:
    assert steps("scans_of_rows") == ["cumsum", "cumsum", "mul+add+cumprod"]


def test_a_few_long_sums_are_scanned_piece_by_piece_on_a_gpu() -> None:
    assert steps("one_long_scan") == ["sum", "cumsum", "cumsum+add", "sum", "cumsum", "cumsum+add+mul"]
    assert steps("one_long_scan", CPU) == ["cumsum", "cumsum+mul"]


def test_a_place_takes_what_stands_before_it_into_its_kernel() -> None:
    assert steps("place_in_a_chain") == ["sin+mul+argmax"]


def test_a_maximum_with_its_place_is_one_kernel_for_each() -> None:
    assert steps("places")[-2:] == ["amax", "argmax"]


def test_rules_that_follow_each_other_name_no_two_calls_alike() -> None:
    for name, graph in GRAPHS.items():
        names = [node.name for node in rewritten(parse(graph), True, True).graph.nodes]
        assert len(set(names)) == len(names), name


def test_losses_of_long_rows_are_folded_piece_by_piece() -> None:
    assert {"smooth_l1_loss+mean", "mean", "log+kl_div+sum", "sum+div"} <= set(steps("long_losses"))


def test_scans_that_stay_with_pytorch_are_written_as_what_they_were(tmp_path: Path) -> None:
    work = work_of(GRAPHS["scans_of_rows"], CPU)
    [genes] = [start for start in work.space.starts if start.get("lone") == "pytorch"]
    candidate = work.write(source("scans_of_rows"), genes)
    assert "torch.flip(torch.cumsum(torch.flip(" in candidate
    assert judged("scans_of_rows", source("scans_of_rows"), candidate, tmp_path) == {}
