"""The targets that templates write for: the same three pieces of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kernel_agent.proposers.templates import emit_cpu, emit_cuda
from kernel_agent.proposers.templates.genes import Space
from kernel_agent.proposers.templates.program import Program
from kernel_agent.proposers.templates.spaces import cpu_space, cuda_space
from kernel_agent.run.types import Device


@dataclass(frozen=True, slots=True)
class TemplateTarget:
    """What can be varied, the kernel's source for one choice of it, and the flags that it is compiled with.

    `sources` and `cflags` are load_inline's arguments for both, `more` is one beside them.
    """

    space: Callable[[Program, Device], Space]
    emit: Callable[[Program, Mapping[str, object]], str]
    flags: Callable[[Mapping[str, object]], tuple[str, ...]]
    sources: str
    cflags: str
    more: str | None = None


TARGETS = {
    "cpu": TemplateTarget(
        cpu_space, emit_cpu.emit, emit_cpu.flags, "cpp_sources", "extra_cflags", 'extra_ldflags=["-fopenmp"]'
    ),
    "cuda": TemplateTarget(cuda_space, emit_cuda.emit, emit_cuda.flags, "cuda_sources", "extra_cuda_cflags"),
}
