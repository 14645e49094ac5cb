"""The families of kernels beside the row programs, a row each, and what builds one of any family from a graph."""

from __future__ import annotations

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.templates import lowering, program
from kernel_agent.proposers.templates.centred import Centred
from kernel_agent.proposers.templates.depthwise import DEPTHWISE, DEPTHWISE_LAST
from kernel_agent.proposers.templates.family import Family, Kit
from kernel_agent.proposers.templates.graph import Graph
from kernel_agent.proposers.templates.lookups import LOOKUPS
from kernel_agent.proposers.templates.lowering import names
from kernel_agent.proposers.templates.places import PLACES
from kernel_agent.proposers.templates.pooling import POOLING
from kernel_agent.proposers.templates.pooling_last import POOLING_LAST
from kernel_agent.proposers.templates.routine import Routine
from kernel_agent.proposers.templates.scans import SCANS

FAMILIES: tuple[Family, ...] = (POOLING, POOLING_LAST, DEPTHWISE, DEPTHWISE_LAST, SCANS, PLACES, LOOKUPS)

_FAMILY = {op: family for family in FAMILIES for op in family.operators}


def covers(base: str) -> bool:
    """Whether some template is written for an operator of this name, for some of its arguments at least."""
    return base in _FAMILY or lowering.covers(base)


def build(graph: Graph) -> Routine:
    """The work of one kernel: a family's around its operator, or else a row program. Raises NotCovered as both do."""
    centres = [node for node in graph.nodes if names(node.op)[0] in _FAMILY]
    if not centres:
        return program.build(graph)
    if len(centres) > 1:
        raise NotCovered(f"one kernel computes one of {centres[0].op} and {centres[1].op}, not both.")
    return _FAMILY[names(centres[0].op)[0]].build(graph, centres[0])


def kit(routine: Centred, target: str) -> Kit:
    """What the family of a routine has for a target."""
    return _FAMILY[names(routine.core.op)[0]].kits[target]
