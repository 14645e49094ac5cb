"""Candidates of the templates that compute convolutions, of the modules that stand with their tests."""

from __future__ import annotations

import json
from typing import Any

from kernel_agent.proposers.regions import module
from kernel_agent.proposers.regions.partition import cut
from kernel_agent.proposers.regions.plan import Plan
from kernel_agent.proposers.templates.arithmetic import ARITHMETICS, Offers
from kernel_agent.proposers.templates.convolution import Convolution
from kernel_agent.proposers.templates.graph import Graph, parse
from kernel_agent.proposers.templates.routine import Routine
from kernel_agent.proposers.templates.targets import TARGETS, Source
from tests.kernel_agent.proposers.convolutions.modules import full_source, source
from tests.support.paths import ROOT

HERE = ROOT / "tests" / "kernel_agent" / "proposers" / "convolutions"
GRAPHS: dict[str, Any] = json.loads((HERE / "graphs.json").read_text())
LARGE: dict[str, Any] = json.loads((HERE / "full.json").read_text())
RATES = {one.name: 1e9 for one in ARITHMETICS}
ALWAYS = Offers(RATES, 1e-6, 1e9, RATES)  # whatever the size
GENES = {"arithmetic": "fp16", "tile": "256x64"}


def plan(graph: Graph, bias: bool = True) -> Plan:
    return cut(graph, bias=bias, long_rows=True, build=ALWAYS.convolve)


def convolution(graph: Graph, bias: bool = True) -> Convolution:
    [kernel] = plan(graph, bias).kernels
    assert isinstance(kernel.program, Convolution)
    return kernel.program


def written(name: str, bias: bool = True, **genes: str) -> str:
    """A candidate whose convolutions all have these genes."""

    def emit(program: Routine) -> Source:
        return TARGETS["cuda"].source(program, {**GENES, **genes})

    graph = parse(GRAPHS.get(name) or LARGE[name])
    text = source(name) if name in GRAPHS else full_source(name)
    return module.assemble(text, name, plan(graph, bias), emit, TARGETS["cuda"].flags({}), TARGETS["cuda"])
