"""The targets that templates write for: the same pieces of each, by what kind of program a kernel computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kernel_agent.proposers.templates import emit_cpu, emit_cuda, emit_product
from kernel_agent.proposers.templates.genes import Space
from kernel_agent.proposers.templates.product import Product
from kernel_agent.proposers.templates.product_space import product_space
from kernel_agent.proposers.templates.program import Program
from kernel_agent.proposers.templates.spaces import cpu_space, cuda_space
from kernel_agent.run.types import Device


@dataclass(frozen=True, slots=True)
class Source:
    """A kernel's text, and how many floats of memory beside its outputs it works in: its `run` takes them last."""

    text: str
    scratch: int = 0


@dataclass(frozen=True, slots=True)
class TemplateTarget:
    """What can be varied, the kernel's source for one choice of it, and the flags that it is compiled with: those of
    row programs, and where the target has them those of products.

    `sources` and `cflags` are load_inline's arguments for both, `more` is one beside them.
    """

    space: Callable[[Program, Device], Space]
    emit: Callable[[Program, Mapping[str, object]], str]
    flags: Callable[[Mapping[str, object]], tuple[str, ...]]
    sources: str
    cflags: str
    more: str | None = None
    products: bool = False

    def space_of(self, program: Program | Product, device: Device) -> Space:
        """What can be varied in either."""
        return product_space(program, device) if isinstance(program, Product) else self.space(program, device)

    def source(self, program: Program | Product, genes: Mapping[str, object]) -> Source:
        """The source of either, for one choice."""
        if isinstance(program, Product):
            assert self.products, "only kernels of CUDA compute products"
            return Source(emit_product.emit(program, genes), emit_product.scratch(program, genes))
        return Source(self.emit(program, genes))


TARGETS = {
    "cpu": TemplateTarget(
        cpu_space, emit_cpu.emit, emit_cpu.flags, "cpp_sources", "extra_cflags", 'extra_ldflags=["-fopenmp"]'
    ),
    "cuda": TemplateTarget(
        cuda_space, emit_cuda.emit, emit_cuda.flags, "cuda_sources", "extra_cuda_cflags", products=True
    ),
}
