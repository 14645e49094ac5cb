"""Candidates of the templates that compute attention, of the modules that stand with their tests."""

from __future__ import annotations

import json
from typing import Any

from kernel_agent.proposers.regions import module
from kernel_agent.proposers.regions.partition import cut
from kernel_agent.proposers.regions.plan import Plan
from kernel_agent.proposers.templates.arithmetic import ARITHMETICS, Offers
from kernel_agent.proposers.templates.attention import HALVES, Attention
from kernel_agent.proposers.templates.graph import Graph, parse
from kernel_agent.proposers.templates.routine import Routine
from kernel_agent.proposers.templates.targets import TARGETS, Source
from kernel_agent.run.types import Device
from tests.kernel_agent.proposers.attentions.modules import source
from tests.support.paths import ROOT

HERE = ROOT / "tests" / "kernel_agent" / "proposers" / "attentions"
GRAPHS: dict[str, Any] = json.loads((HERE / "graphs.json").read_text())
LARGE: dict[str, Any] = json.loads((HERE / "full.json").read_text())
RATES = {one.name: 1e9 for one in ARITHMETICS}
ALWAYS = Offers(RATES, 1e-6, 1e9, RATES, half=1e9)  # whatever the size
DEVICE = Device("cuda", "a GPU", "sm_90", 0, 4286.0, build_arch="9.0a")
GENES = {"arithmetic": "fp16x3", "tile": "128x64", "stages": 3}


def plan(graph: Graph) -> Plan:
    return cut(graph, bias=True, long_rows=True, lone=False, build=ALWAYS.build)


def attention(graph: Graph) -> Attention:
    [found] = [kernel.program for kernel in plan(graph).kernels if isinstance(kernel.program, Attention)]
    return found


def written(name: str, **genes: str | int) -> str:
    """A candidate whose attention has these genes."""

    def emit(program: Routine) -> Source:
        if isinstance(program, Attention):
            way = {"arithmetic": program.arithmetics[0]} if program.result.dtype in HALVES else {}
            return TARGETS["cuda"].source(program, {**GENES, **way, **genes})
        start = TARGETS["cuda"].space(program, DEVICE).starts[0]
        return TARGETS["cuda"].source(program, start)

    graph = parse(GRAPHS.get(name) or LARGE[name])
    return module.assemble(source(name), name, plan(graph), emit, TARGETS["cuda"].flags({}), TARGETS["cuda"])
