"""What the emitters of all targets share: the tensors' names and types, and the places of `run`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import indent

from kernel_agent.proposers.templates.express import operand
from kernel_agent.proposers.templates.program import Call, Folded, Program, Read
from kernel_agent.proposers.templates.routine import Routine
from kernel_agent.proposers.templates.schedule import Keep, passes

TYPES = {"float32": "float", "float16": "k_float16", "bfloat16": "k_bfloat16", "bool": "k_bool", "int64": "k_int64"}
START = {"sum": "0.0f", "max": "-INFINITY", "min": "INFINITY"}


def types(routine: Routine) -> tuple[str, ...]:
    """The element types that occur."""
    found = {leaf.spec.dtype for leaf in routine.leaves} | {output.spec.dtype for output in routine.outputs}
    return tuple(TYPES[dtype] for dtype in sorted(found))


def tensors(routine: Routine) -> str:
    """The struct that a kernel takes: a pointer for each leaf and output."""
    lines = [
        f"const {TYPES[leaf.spec.dtype]}* in{n};  // {leaf.path or leaf.node}" for n, leaf in enumerate(routine.leaves)
    ]
    lines += [f"{TYPES[output.spec.dtype]}* out{n};" for n, output in enumerate(routine.outputs)]
    return "struct Tensors {\n" + indent("\n".join(lines), "  ") + "\n};"


def run(routine: Routine, last: Sequence[str]) -> str:
    """The exported function: it takes the leaves and then the outputs, and ends with the `last` statements."""
    leaves, outputs = routine.leaves, routine.outputs
    lines = ["Tensors t;"]
    for n, leaf in enumerate(leaves):
        lines.append(f"t.in{n} = static_cast<const {TYPES[leaf.spec.dtype]}*>(in{n}.data_ptr());")
    for n, output in enumerate(outputs):
        lines.append(f"t.out{n} = static_cast<{TYPES[output.spec.dtype]}*>(out{n}.data_ptr());")
    names = [f"in{n}" for n in range(len(leaves))] + [f"out{n}" for n in range(len(outputs))]
    arguments = ", ".join(f"tvm::ffi::TensorView {name}" for name in names)
    return f"void run({arguments}) {{\n" + indent("\n".join([*lines, *last]), "  ") + "\n}"


class Writer:
    """Writes one program with one choice of genes."""

    def __init__(self, program: Program, genes: Mapping[str, object], keep: Keep) -> None:
        self.program = program
        self.genes = genes
        self.passes = passes(program, keep)

    def types(self) -> tuple[str, ...]:
        """The element types that occur."""
        return types(self.program)

    def tensors(self) -> str:
        """The struct that a kernel takes: a pointer for each leaf and output."""
        return tensors(self.program)

    def run(self, last: Sequence[str]) -> str:
        """The exported function: it takes the leaves and then the outputs, and ends with the `last` statements."""
        return run(self.program, last)

    def folded(self, i: int) -> Folded:
        """The term, which is a fold."""
        term = self.program.terms[i]
        assert isinstance(term, Folded)
        return term

    def read(self, i: int) -> Read:
        """The term, which is a read."""
        term = self.program.terms[i]
        assert isinstance(term, Read)
        return term

    def type(self, i: int) -> str:
        """The C type of what a read reads."""
        return TYPES[self.read(i).leaf.spec.dtype]

    def divisor(self, i: int) -> int | None:
        """The term that a division shares over the row, where the genes multiply by its reciprocal."""
        term = self.program.terms[i]
        if self.genes.get("divide") != "reciprocal" or not isinstance(term, Call) or term.function != "div":
            return None
        by = term.args[1]
        return by if self.program.by_row[by] and not self.program.by_column[by] else None

    def reciprocals(self, loop: Sequence[int]) -> list[str]:
        """The declarations of the reciprocals that a loop multiplies by."""
        divisors = sorted({by for i in loop if (by := self.divisor(i)) is not None})
        return [f"const float i{by} = 1.0f / v{by};" for by in divisors]

    def multiplied(self, i: int) -> str | None:
        """A division as a product with a reciprocal, or None where it isn't one to be replaced."""
        by, term = self.divisor(i), self.program.terms[i]
        return f"{operand(self.program, term.args[0])} * i{by}" if by is not None and isinstance(term, Call) else None
