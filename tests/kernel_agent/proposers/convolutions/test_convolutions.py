"""Convolutions by wgmma: the kernels' own index maps, run on the CPU with boxes and tensor cores in emulation."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from kernel_agent.proposers.regions import module
from kernel_agent.proposers.regions.partition import cut
from kernel_agent.proposers.regions.plan import Plan
from kernel_agent.proposers.templates.arithmetic import ARITHMETICS, Offers
from kernel_agent.proposers.templates.convolution import Convolution
from kernel_agent.proposers.templates.graph import Graph, parse
from kernel_agent.proposers.templates.routine import Routine
from kernel_agent.proposers.templates.targets import TARGETS, Source
from kernel_agent.run.types import Device
from tests.kernel_agent.proposers.convolutions.modules import MODULES, source
from tests.support.emitted import compiled_by_nvcc, judged, on_cpu

HERE = Path(__file__).parent
GRAPHS: dict[str, Any] = json.loads((HERE / "graphs.json").read_text())
HOPPER = Device("cuda", "a GPU", "sm_90", 0, 4286.0, build_arch="9.0a")
RATES = {one.name: 1e9 for one in ARITHMETICS}
ALWAYS = Offers(RATES, 1e-6, 1e9, RATES)  # whatever the size
GENES = {"arithmetic": "fp16", "tile": "256x64"}


def plan(graph: Graph, bias: bool = True) -> Plan:
    return cut(graph, bias=bias, long_rows=True, build=ALWAYS.convolve)


def written(name: str, **genes: str) -> str:
    """A candidate whose convolutions all have these genes."""

    def emit(program: Routine) -> Source:
        assert isinstance(program, Convolution)
        return TARGETS["cuda"].source(program, {**GENES, **genes})

    text = source(name)
    return module.assemble(text, name, plan(parse(GRAPHS[name])), emit, TARGETS["cuda"].flags({}), TARGETS["cuda"])


def fault(name: str, text: str, folder: Path) -> str | None:
    """What is wrong with a candidate that runs on the CPU."""
    return judged(name, source(name), on_cpu(text), folder).get(name)


@pytest.mark.parametrize(
    ("name", "genes"),
    [("tail", {}), *(pytest.param(name, {}, marks=pytest.mark.long) for name in MODULES if name != "tail")],
    ids=lambda value: value if isinstance(value, str) else "-".join(value.values()) or "default",
)
def test_convolutions_equal_pytorch_in_emulation(tmp_path: Path, name: str, genes: dict[str, str]) -> None:
    assert fault(name, written(name, **genes), tmp_path) is None
