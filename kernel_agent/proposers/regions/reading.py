"""How a kernel reads tensors as they lie in memory, and which reads would be slow."""

from __future__ import annotations

from kernel_agent.proposers.regions.plan import Kernel
from kernel_agent.proposers.templates.convolution import Convolution
from kernel_agent.proposers.templates.program import Program, Read
from kernel_agent.proposers.templates.routine import Routine

UNCACHED = 1 << 26  # bytes of a tensor of which no last cache keeps the lines from element to element


def reads_well(kernel: Kernel, name: str) -> bool:
    """Whether a kernel reads a tensor in its own order, or tile by tile: one that folds would read here and there."""
    program = kernel.program
    if isinstance(program, Convolution):
        return True
    if not isinstance(program, Program):
        return False
    reads = [i for i, term in enumerate(program.terms) if isinstance(term, Read) and term.leaf.node == name]
    return not program.folds or all(program.places[i][1] == ((program.columns, 1),) for i in reads)


def reads_lines(program: Routine) -> bool:
    """Whether a kernel that folds rows reads them as they lie, or neighbouring rows together."""
    if not isinstance(program, Program) or not program.folds or program.strided:
        return True
    along = ((), ((program.columns, 0),), ((program.columns, 1),))
    return all(columns in along for _, columns in program.places.values())


def reads_apart(program: Routine) -> bool:
    """Whether a kernel that folds rows reads elements that lie apart of a tensor that no cache holds: a line each."""
    if not isinstance(program, Program) or not program.folds or program.strided:
        return False
    return any(
        isinstance(term, Read) and term.leaf.spec.bytes > UNCACHED and columns and columns[-1][1] > 1
        for term, (_, columns) in ((program.terms[i], places) for i, places in program.places.items())
    )
