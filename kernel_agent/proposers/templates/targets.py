"""The targets that templates write for: the same pieces of each, by what kind of routine a kernel computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernel_agent.proposers.templates import (
    emit_attention,
    emit_convolution,
    emit_cpu,
    emit_cuda,
    emit_product,
    emit_recurrent,
)
from kernel_agent.proposers.templates.attention import Attention
from kernel_agent.proposers.templates.attention_space import attention_space
from kernel_agent.proposers.templates.centred import Centred
from kernel_agent.proposers.templates.convolution import Convolution
from kernel_agent.proposers.templates.convolution_space import convolution_space
from kernel_agent.proposers.templates.families import kit
from kernel_agent.proposers.templates.genes import Space
from kernel_agent.proposers.templates.product import Product
from kernel_agent.proposers.templates.product_space import product_space
from kernel_agent.proposers.templates.program import Program
from kernel_agent.proposers.templates.recurrent import Recurrent
from kernel_agent.proposers.templates.routine import Routine
from kernel_agent.proposers.templates.spaces import cpu_space, cuda_space
from kernel_agent.run.types import Device


@dataclass(frozen=True, slots=True)
class Source:
    """A kernel's text, and how many floats of memory beside its outputs it works in: its `run` takes them last."""

    text: str
    scratch: int = 0


@dataclass(frozen=True, slots=True)
class Rung:
    """What one kernel of the corpus has for its kind of routine: what can be varied, its source for one choice, and the
    floats of memory that it works in then."""

    space: Callable[[Any, Device], Space]
    emit: Callable[[Any, Mapping[str, object]], str]
    scratch: Callable[[Any, Mapping[str, object]], int]


@dataclass(frozen=True, slots=True)
class TemplateTarget:
    """How row programs are varied and written for a target, and how all kernels are compiled for it.

    `sources` and `cflags` are load_inline's arguments for source and flags, `more` is one beside them. `rungs` are the
    kernels of the corpus that it has, by the kind of routine that each computes.
    """

    name: str
    rows_space: Callable[[Program, Device], Space]
    rows_emit: Callable[[Program, Mapping[str, object]], str]
    flags: Callable[[Mapping[str, object]], tuple[str, ...]]
    sources: str
    cflags: str
    more: str | None = None
    rungs: Mapping[type[Routine], Rung] = field(default_factory=dict)

    def space(self, routine: Routine, device: Device) -> Space:
        """What can be varied in a kernel."""
        if rung := self.rungs.get(type(routine)):
            return rung.space(routine, device)
        if isinstance(routine, Centred):
            return kit(routine, self.name).space(routine, device)
        assert isinstance(routine, Program), f"no kernel for {self.name} computes this"
        return self.rows_space(routine, device)

    def emit(self, routine: Routine, genes: Mapping[str, object]) -> str:
        """The kernel's source for one choice of it."""
        if rung := self.rungs.get(type(routine)):
            return rung.emit(routine, genes)
        if isinstance(routine, Centred):
            return kit(routine, self.name).emit(routine, genes)
        assert isinstance(routine, Program), f"no kernel for {self.name} computes this"
        return self.rows_emit(routine, genes)

    def source(self, routine: Routine, genes: Mapping[str, object]) -> Source:
        """The same with the memory that it works in."""
        rung = self.rungs.get(type(routine))
        return Source(self.emit(routine, genes), rung.scratch(routine, genes) if rung else 0)


RUNGS: Mapping[type[Routine], Rung] = {
    Product: Rung(product_space, emit_product.emit, emit_product.scratch),
    Convolution: Rung(convolution_space, emit_convolution.emit, emit_convolution.scratch),
    Attention: Rung(attention_space, emit_attention.emit, emit_attention.scratch),
    Recurrent: Rung(emit_recurrent.recurrent_space, emit_recurrent.emit, emit_recurrent.scratch),
}
TARGETS = {
    "cpu": TemplateTarget(
        "cpu", cpu_space, emit_cpu.emit, emit_cpu.flags, "cpp_sources", "extra_cflags", 'extra_ldflags=["-fopenmp"]'
    ),
    "cuda": TemplateTarget(
        "cuda", cuda_space, emit_cuda.emit, emit_cuda.flags, "cuda_sources", "extra_cuda_cflags", rungs=RUNGS
    ),
}
