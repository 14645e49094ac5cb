"""Candidates of the templates that compute recurrent networks, of the modules that stand with their tests."""

from __future__ import annotations

import json
from typing import Any

from kernel_agent.proposers.regions import module
from kernel_agent.proposers.regions.partition import cut
from kernel_agent.proposers.regions.plan import Plan
from kernel_agent.proposers.templates.arithmetic import covered
from kernel_agent.proposers.templates.graph import Graph, parse
from kernel_agent.proposers.templates.recurrent import Recurrent, is_recurrent, recurrent_of
from kernel_agent.proposers.templates.recurrent_tile import ranked
from kernel_agent.proposers.templates.routine import Routine
from kernel_agent.proposers.templates.targets import TARGETS, Source
from kernel_agent.run.measured import Chip
from kernel_agent.run.types import Device
from tests.kernel_agent.proposers.recurrent.modules import full_source, source
from tests.support.paths import ROOT

HERE = ROOT / "tests" / "kernel_agent" / "proposers" / "recurrent"
GRAPHS: dict[str, Any] = json.loads((HERE / "graphs.json").read_text())
LARGE: dict[str, Any] = json.loads((HERE / "full.json").read_text())
H200 = Device("cuda", "a GPU", "sm_90", 0, 4286.0, build_arch="9.0a", chip=Chip(132))


def plan(graph: Graph) -> Plan:
    """The cut in which every recurrent network is a kernel of ours, whatever its size."""

    def build(graph: Graph) -> Routine:
        return recurrent_of(graph) if any(map(is_recurrent, graph.nodes)) else covered(graph)

    return cut(graph, bias=True, long_rows=True, build=build)


def recurrent(graph: Graph) -> Recurrent:
    """The network of a graph."""
    [found] = [kernel.program for kernel in plan(graph).kernels if isinstance(kernel.program, Recurrent)]
    return found


def written(graphs: dict[str, Any], name: str, tile: str | None = None) -> str:
    """A candidate of a small module or a large one, by a tile or the one that is predicted to be fastest."""
    graph = parse(graphs[name])

    def emit(program: Routine) -> Source:
        target = TARGETS["cuda"]
        if isinstance(program, Recurrent):
            return target.source(program, {"tile": tile or next(iter(ranked(program.shape, H200)))})
        return target.source(program, target.space(program, H200).starts[0])

    text = source(name) if graphs is GRAPHS else full_source(name)
    return module.assemble(text, name, plan(graph), emit, TARGETS["cuda"].flags({}), TARGETS["cuda"])
