"""Kernels that write into a larger tensor, such as the result of a concatenation, instead of a tensor of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.templates.convolution import Convolution
from kernel_agent.proposers.templates.program import Program
from kernel_agent.proposers.templates.routine import Routine
from kernel_agent.proposers.templates.strides import Slab


def laid(routine: Routine, slabs: Mapping[str, Slab]) -> Routine:
    """The same work, some outputs of which lie as their slabs say. Raises NotCovered where no kernel writes so."""
    pairs = zip(routine.graph.outputs, routine.outputs, strict=True)
    outputs = tuple(replace(output, slab=slabs.get(name)) for name, output in pairs)
    if isinstance(routine, Convolution):
        image, images = routine.shape.image, routine.shape.images
        if any(slab.run not in (image, images * image) for slab in slabs.values()):
            raise NotCovered("a convolution's kernel writes whole images, or all of them, into a larger tensor.")
        return replace(routine, tail=replace(routine.tail, outputs=outputs))
    if not isinstance(routine, Program) or routine.strided or routine.transposed:
        raise NotCovered("kernels of convolutions and of rows alone write into a larger tensor.")
    for output in outputs:
        if output.slab and (not output.full or (routine.folds and output.slab.run % routine.columns)):
            raise NotCovered("no template writes parts of rows, or what is folded, into a larger tensor.")
    return replace(routine, outputs=outputs)
