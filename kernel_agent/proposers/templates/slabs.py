"""Kernels that write into a larger tensor, such as the result of a concatenation, or read from one.

Row programs and what is around an operator read a slice as they read other views; a convolution is told where it lies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.templates.centred import Centred
from kernel_agent.proposers.templates.convolution import Convolution
from kernel_agent.proposers.templates.graph import Graph
from kernel_agent.proposers.templates.program import Program
from kernel_agent.proposers.templates.routine import Routine
from kernel_agent.proposers.templates.spelled import LAST
from kernel_agent.proposers.templates.strides import Slab

ALIGNED = 16  # elements: of where an output begins, the rest by them says for which vectors it is aligned


def laid(routine: Routine, slabs: Mapping[str, Slab]) -> Routine:
    """The same work, some outputs of which lie as their slabs say. Raises NotCovered where no kernel writes so."""
    pairs = zip(routine.graph.outputs, routine.outputs, strict=True)
    aligned = {name: replace(slab, begin=slab.begin % ALIGNED) for name, slab in slabs.items()}
    outputs = tuple(replace(output, slab=aligned.get(name)) for name, output in pairs)
    within = aligned.values()
    if isinstance(routine, Convolution):
        image, images = routine.shape.image, routine.shape.images
        if any(slab.run not in (image, images * image) for slab in within):
            raise NotCovered("a convolution's kernel writes whole images, or all of them, into a larger tensor.")
        return replace(routine, tail=replace(routine.tail, outputs=outputs))
    if isinstance(routine, Centred) and all(output.full for output in outputs):
        columns = routine.piece(LAST).columns
        if any(slab.run % columns or {slab.run % ALIGNED, slab.pitch % ALIGNED, slab.begin} != {0} for slab in within):
            raise NotCovered("this kernel writes whole rows into a larger tensor, and vectors of any size.")
        return replace(routine, outputs=outputs)
    if not isinstance(routine, Program) or routine.strided or routine.transposed:
        raise NotCovered("this kernel does not write into a larger tensor.")
    for output in outputs:
        if output.slab and (not output.full or (routine.folds and output.slab.run % routine.columns)):
            raise NotCovered("no template writes parts of rows, or what is folded, into a larger tensor.")
    return replace(routine, outputs=outputs)


def reading(convolution: Convolution, graph: Graph, slabs: Mapping[str, Slab]) -> Convolution:
    """A convolution of an input that lies in a larger tensor, as its slab says, of which `graph` shows the slice.

    Raises NotCovered where another tensor lies so, or images do not lie whole.
    """
    of, read = convolution.shape, [leaf.node for leaf in convolution.tail.leaves]
    whole = next((node.args[0].node for node in graph.nodes if node.name == convolution.x.node), "")
    if whole not in graph.leaves or len(slabs) > 1 or convolution.x.node in read:
        raise NotCovered("a convolution's kernel reads its input alone from a larger tensor.")
    [slab], image = slabs.values(), of.given[0] * prod(of.given[1])
    if slab.run != image:
        raise NotCovered("a convolution's kernel reads whole images from a larger tensor.")
    return replace(convolution, graph=graph, x=graph.leaves[whole], lies=slab)
