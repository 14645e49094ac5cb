"""What is varied and written for one module: one kernel for all of it, or kernels between PyTorch's calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.regions import module
from kernel_agent.proposers.regions.partition import cut
from kernel_agent.proposers.regions.plan import Plan, size, traffic
from kernel_agent.proposers.regions.rewrite import FEW, LONG
from kernel_agent.proposers.templates import candidate
from kernel_agent.proposers.templates.genes import Gene, GeneChoice, Genes, Space, starting, strategy
from kernel_agent.proposers.templates.graph import Graph, parse
from kernel_agent.proposers.templates.program import Program, build
from kernel_agent.proposers.templates.targets import TARGETS, TemplateTarget
from kernel_agent.run.regions import KeptRegion, Regions
from kernel_agent.run.types import Device

LARGE = 600  # calls of a module from which only one cut is tried: each takes seconds


class Work(Protocol):
    """What can be varied in a module's kernels, and their source for one choice of it."""

    @property
    def space(self) -> Space:
        """The genes, and where to start."""
        ...

    def write(self, problem: str, genes: Mapping[str, int | str]) -> str:
        """The candidate's source."""
        ...

    def outlook(self) -> tuple[str, int]:
        """What does the work, and how many bytes it moves at least."""
        ...

    @property
    def regions(self) -> Regions:
        """How many kernels there are, and what stays PyTorch's."""
        ...


def work_of(graph: Mapping[str, Any], device: Device) -> Work:
    """One kernel where it covers the whole module well, else kernels for regions of it.

    Raises NotCovered where no kernel of ours would cover anything, with what stands in the way of each region.
    """
    traced, target = parse(graph), TARGETS[device.target]
    try:
        program = build(traced)
    except NotCovered as fault:
        return _regional(traced, target, device, fault)
    idle = device.target == "cuda" and program.folds and program.rows < FEW and program.columns > LONG
    return _regional(traced, target, device, None) if idle else Whole(program, target, device)


def _regional(graph: Graph, target: TemplateTarget, device: Device, fault: NotCovered | None) -> Work:
    if graph.structure not in ("tensor", "tuple", "list"):
        assert fault is not None
        raise fault
    unknown = next((leaf.node for leaf in graph.leaves.values() if leaf.made and leaf.value is None), None)
    if unknown is not None:
        raise NotCovered(f"the trace does not say what is in {unknown}, which forward makes of Python numbers.")
    work = Regional(graph, target, device)
    if not work.plan(work.space.starts[0]).written:
        raise _nothing(work.plan(work.space.starts[0]), fault)
    return work


def _nothing(plan: Plan, fault: NotCovered | None) -> NotCovered:
    """Why the original stays as it is, region by region."""
    if fault is not None and not plan.reasons:
        return fault
    return NotCovered("the templates have no kernel for any part of this module.", plan.reasons)


@dataclass(frozen=True)
class Whole:
    """One kernel for the whole module."""

    program: Program
    target: TemplateTarget
    device: Device

    @cached_property
    def space(self) -> Space:
        return self.target.space(self.program, self.device)

    def write(self, problem: str, genes: Mapping[str, int | str]) -> str:
        tunables = {g.macro: (genes[g.name], g.values) for g in self.space.genes if g.macro}
        kernel, flags = self.target.emit(self.program, genes), self.target.flags(genes)
        title = self.space.title(genes)
        return candidate.assemble(problem, title, kernel, self.program, tunables, flags, self.target)

    def outlook(self) -> tuple[str, int]:
        specs = [*(leaf.spec for leaf in self.program.leaves), *(output.spec for output in self.program.outputs)]
        return "One kernel for the whole module moves", sum(map(size, specs))

    @property
    def regions(self) -> Regions:
        return Regions(1)


BIAS = strategy(
    "bias",
    [
        ("kernel", "", "A bias that the kernel behind a convolution adds costs no pass of its own."),
        ("call", "biases in the convolutions", "A convolution that adds its bias itself may have it for nothing."),
    ],
)
CONVOLUTION = strategy(
    "convolution",
    [
        ("kernel", "", "Winograd's transforms leave four products of nine to a convolution by windows of 3 x 3."),
        ("library", "convolutions of the library", "The library's convolution spares the transforms."),
    ],
)
LONE = strategy(
    "lone",
    [
        (
            "kernel",
            "",
            "A kernel of ours for every region may be faster than PyTorch's even where it saves no traffic.",
        ),
        ("pytorch", "kernels only where they save traffic", "PyTorch's own kernels do single operators as well."),
    ],
)


@dataclass(frozen=True)
class Regional:
    """Kernels for the regions of a module that they cover; the rest runs as the calls of PyTorch that it was."""

    graph: Graph
    target: TemplateTarget
    device: Device

    @cached_property
    def _plans(self) -> dict[tuple[str, str, str], Plan]:
        return {}

    def plan(self, genes: Mapping[str, int | str]) -> Plan:
        """The cut that the genes ask for."""
        bias = str(genes.get("bias", "kernel" if self._on_gpu else "call"))
        key = bias, str(genes.get("lone", "kernel")), str(genes.get("convolution", "kernel"))
        if key not in self._plans:
            kinds = frozenset() if self._on_gpu else frozenset({"cpu", *(["winograd"] if key[2] == "kernel" else [])})
            lone = key[1] == "kernel"
            self._plans[key] = cut(self.graph, bias=bias == "kernel", long_rows=self._on_gpu, lone=lone, kinds=kinds)
        return self._plans[key]

    @property
    def _on_gpu(self) -> bool:
        return self.device.target == "cuda"

    @cached_property
    def space(self) -> Space:
        first = self.plan({})
        small = len(self.graph.nodes) < LARGE
        genes = list[Gene]()
        if self._on_gpu and small and any("bias" in rule for rule in first.rules):
            genes.append(BIAS)
        if small and 0 < len(self.plan({"lone": "pytorch"}).kernels) < len(first.kernels):
            genes.append(LONE)
        if small and first.rungs:
            genes.append(CONVOLUTION)
        largest: dict[str, Program] = {}
        for kernel in sorted(first.kernels, key=lambda kernel: -kernel.moved):
            largest.setdefault(_family(kernel.program), kernel.program)
        genes += [self._variants(family, program) for family, program in largest.items()]
        departures: list[Genes] = [{g.name: n for g in genes if g.name in largest} for n in range(1, 6)]
        chosen: list[Genes] = [
            {"convolution": "library"},
            {"lone": "pytorch"},
            *departures[:2],
            {"bias": "call"},
            *departures[2:],
        ]
        return starting(genes, chosen)

    def _variants(self, family: str, program: Program) -> Gene:
        """One gene for all kernels of a family: with which of its starting points each is written."""
        space = self.target.space(program, self.device)
        choices = []
        for n, start in enumerate(space.starts):
            whys = [gene.choice(start[gene.name]).why for gene in space.genes]
            choices.append(GeneChoice(n, f"{family}: {space.title(start)}", whys[0]))
        return Gene(family, tuple(choices))

    def write(self, problem: str, genes: Mapping[str, int | str]) -> str:
        plan = self.plan(genes)

        def start(program: Program) -> Genes:
            starts = self.target.space(program, self.device).starts
            return starts[int(genes.get(_family(program), 0)) % len(starts)]

        most = max(plan.kernels, key=lambda kernel: kernel.moved, default=None)
        flags = self.target.flags(start(most.program) if most else {})
        title = self.space.title(genes)
        return module.assemble(problem, title, plan, lambda p: self.target.emit(p, start(p)), flags, self.target)

    def outlook(self) -> tuple[str, int]:
        plan = self.plan({})
        many = plan.written
        count = (
            "One kernel beside PyTorch's calls moves" if many == 1 else f"{many} kernels beside PyTorch's calls move"
        )
        moved = sum(kernel.moved for kernel in plan.kernels)
        return count, moved + sum(traffic(node, plan.specs) for node in plan.rungs)

    @property
    def regions(self) -> Regions:
        plan = self.plan({})
        return Regions(plan.written, kept(plan.reasons))


def kept(reasons: Mapping[str, str]) -> tuple[KeptRegion, ...]:
    """What stays PyTorch's, as a run records it."""
    return tuple(KeptRegion(part, reason) for part, reason in reasons.items())


def _family(program: Program) -> str:
    return "columns" if program.strided else program.family
