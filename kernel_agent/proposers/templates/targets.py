"""The targets that templates write for: the same three pieces of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kernel_agent.proposers.templates import emit_cpu, emit_cuda
from kernel_agent.proposers.templates.centred import Centred
from kernel_agent.proposers.templates.families import kit
from kernel_agent.proposers.templates.genes import Space
from kernel_agent.proposers.templates.program import Program
from kernel_agent.proposers.templates.routine import Routine
from kernel_agent.proposers.templates.spaces import cpu_space, cuda_space
from kernel_agent.run.types import Device


@dataclass(frozen=True, slots=True)
class TemplateTarget:
    """How row programs are varied and written for a target, and how all kernels are compiled for it.

    `sources` and `cflags` are load_inline's arguments for source and flags, `more` is one beside them.
    """

    name: str
    rows_space: Callable[[Program, Device], Space]
    rows_emit: Callable[[Program, Mapping[str, object]], str]
    flags: Callable[[Mapping[str, object]], tuple[str, ...]]
    sources: str
    cflags: str
    more: str | None = None

    def space(self, routine: Routine, device: Device) -> Space:
        """What can be varied in a kernel."""
        if isinstance(routine, Centred):
            return kit(routine, self.name).space(routine, device)
        assert isinstance(routine, Program)
        return self.rows_space(routine, device)

    def emit(self, routine: Routine, genes: Mapping[str, object]) -> str:
        """The kernel's source for one choice of it."""
        if isinstance(routine, Centred):
            return kit(routine, self.name).emit(routine, genes)
        assert isinstance(routine, Program)
        return self.rows_emit(routine, genes)


TARGETS = {
    "cpu": TemplateTarget(
        "cpu", cpu_space, emit_cpu.emit, emit_cpu.flags, "cpp_sources", "extra_cflags", 'extra_ldflags=["-fopenmp"]'
    ),
    "cuda": TemplateTarget("cuda", cuda_space, emit_cuda.emit, emit_cuda.flags, "cuda_sources", "extra_cuda_cflags"),
}
