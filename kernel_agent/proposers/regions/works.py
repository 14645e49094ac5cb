"""What is varied and written for one module: one kernel for all of it, or kernels between PyTorch's calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any, Protocol

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.regions import module
from kernel_agent.proposers.regions.channels import WIDE, convolutions
from kernel_agent.proposers.regions.forecast import worth
from kernel_agent.proposers.regions.partition import Build, cut
from kernel_agent.proposers.regions.plan import Plan, specs, traffic
from kernel_agent.proposers.regions.rule import FEW, LONG, UNCACHED_ROW
from kernel_agent.proposers.templates import candidate
from kernel_agent.proposers.templates.arithmetic import Offers, covered
from kernel_agent.proposers.templates.attention import Attention
from kernel_agent.proposers.templates.convolution import Convolution, is_convolution
from kernel_agent.proposers.templates.emit_recurrent import build as recurring
from kernel_agent.proposers.templates.families import build
from kernel_agent.proposers.templates.genes import Gene, GeneChoice, Genes, Space, starting, strategy
from kernel_agent.proposers.templates.graph import Graph, parse
from kernel_agent.proposers.templates.product import Product
from kernel_agent.proposers.templates.program import Program
from kernel_agent.proposers.templates.recurrent import is_recurrent
from kernel_agent.proposers.templates.routine import Routine, moved
from kernel_agent.proposers.templates.targets import TARGETS, Source, TemplateTarget
from kernel_agent.run.regions import KeptRegion, Regions
from kernel_agent.run.types import Device

LONG_GRAPH = 200  # calls of a module from which fewer layouts are tried
LARGE = 1000  # calls of a module from which only one cut is tried: of 614 calls each takes a second or two


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


def work_of(graph: Mapping[str, Any], device: Device, offers: Offers | None = None) -> Work:
    """One kernel where it covers the whole module well, else kernels for regions of it.

    `offers` says how products may be computed; without it they stay PyTorch's.

    Raises NotCovered where no kernel of ours would cover anything, with what stands in the way of each region.
    """
    traced, target = parse(graph), TARGETS[device.target]
    try:
        program = build(traced)
    except NotCovered as fault:
        return _regional(traced, target, device, offers, fault)
    chains, length = program.chains
    thrice = isinstance(program, Program) and max(program.phase, default=0) > 1  # a norm reads its rows for each moment
    idle = device.target == "cuda" and ((length > LONG and chains < FEW) or (length >= UNCACHED_ROW and thrice))
    return _regional(traced, target, device, offers, None) if idle else Whole(program, target, device)


def _regional(
    graph: Graph, target: TemplateTarget, device: Device, offers: Offers | None, fault: NotCovered | None
) -> Work:
    if graph.structure not in ("tensor", "tuple", "list"):
        assert fault is not None
        raise fault
    unknown = next((leaf.node for leaf in graph.leaves.values() if leaf.made and leaf.value is None), None)
    if unknown is not None:
        raise NotCovered(f"the trace does not say what is in {unknown}, which forward makes of Python numbers.")
    work = Regional(graph, target, device, offers if target.rungs else None)
    if not work.plan(work.space.starts[0]).written:
        raise _nothing(work.plan(work.space.starts[0]), None if offers else fault)
    return work


def _nothing(plan: Plan, fault: NotCovered | None) -> NotCovered:
    """Why the original stays as it is, region by region."""
    if fault is not None and not plan.reasons:
        return fault
    return NotCovered("the templates have no kernel for any part of this module.", plan.reasons)


@dataclass(frozen=True)
class Whole:
    """One kernel for the whole module."""

    program: Routine
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
        return "One kernel for the whole module moves", moved(self.program)

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
LAYOUTS = {
    "kernel": ("our convolutions", "Tensor cores read one narrow copy of the input, and what follows is fused."),
    "last": ("", "cuDNN's kernels read channels last, and the kernels around them change the layout on their way."),
    "first": ("channels first", "Channels first need no change of layout by kernels of ours; cuDNN makes its own."),
    "wide": (
        "channels last where there are many",
        "A convolution of few channels leaves tensor cores half empty with channels last.",
    ),
}
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


PRODUCTS = {
    "kernel": ("", "Split operands on tensor cores are predicted to beat the library's float32 product."),
    "bold": (
        "products that may err too much",
        "Operands that are predicted to err nearly as much as is allowed beat the library where finer ones do not.",
    ),
    "library": ("products of the library", "The library knows its device: its products may be as fast."),
}
MANY = 1 << 12  # combinations of genes: of more, a proposer would be slow to choose


@dataclass(frozen=True)
class Regional:
    """Kernels for the regions of a module that they cover; the rest runs as the calls of PyTorch that it was."""

    graph: Graph
    target: TemplateTarget
    device: Device
    offers: Offers | None = None

    @cached_property
    def _plans(self) -> dict[tuple[str, ...], Plan]:
        return {}

    def plan(self, genes: Mapping[str, int | str]) -> Plan:
        """The cut that the genes ask for."""
        bias, lone = str(genes.get("bias", "kernel" if self._on_gpu else "call")), str(genes.get("lone", "kernel"))
        layout = str(genes.get("layout") or self._layouts[0])
        products = str(genes.get("products") or self._products[0])
        winograd = not self._on_gpu and str(genes.get("convolution", "kernel"))
        key = bias, lone, products, str(winograd), layout
        if key not in self._plans:
            make = self._build(products, layout == "kernel")
            on_cpu = {"cpu", *(["winograd"] if winograd == "kernel" else [])}
            kinds = frozenset({layout, "gpu"} if self._on_gpu else on_cpu)
            self._plans[key] = cut(
                self.graph,
                bias=bias == "kernel",
                long_rows=self._on_gpu,
                lone=lone == "kernel",
                kinds=kinds,
                build=make,
            )
        return self._plans[key]

    def _build(self, products: str, convolutions: bool) -> Build:
        """What makes one kernel of a graph, where products, convolutions and recurrent networks may be its work too."""
        others = self._denser(products, convolutions)
        if not self._on_gpu:
            return others
        return lambda graph: recurring(graph, self.device) if any(map(is_recurrent, graph.nodes)) else others(graph)

    def _denser(self, products: str, convolutions: bool) -> Build:
        """The same without recurrent networks."""
        if self.offers is None:
            return covered
        offers = replace(self.offers, bold=products == "bold")
        others = covered if products == "library" else offers.build
        if not convolutions:
            return others
        return lambda graph: offers.convolve(graph) if any(map(is_convolution, graph.nodes)) else others(graph)

    @cached_property
    def _products(self) -> list[str]:
        """What kernels of ours may compute products, where that differs, first those that are surely exact enough."""
        if self.offers is None or not self.offers.near or len(self.graph.nodes) >= LARGE:
            return ["kernel"]
        sure, bold = (self.plan({"products": name, "layout": "first"}) for name in ("kernel", "bold"))
        if _products(sure) == _products(bold):
            return ["kernel"]
        return ["kernel", "bold"] if sure.written else ["bold"]

    @cached_property
    def _layouts(self) -> list[str]:
        """The layouts of convolutions that differ and leave kernels of ours, the one first that is predicted to take
        least; `kernel` is a kernel of ours for convolutions too."""
        if not self._on_gpu or len(self.graph.nodes) >= LARGE or not any(map(is_convolution, self.graph.nodes)):
            return ["first"]
        found, known = convolutions(self.graph), specs(self.graph)
        few = [known[node.args[0].node].shape[1] < WIDE for node in found]
        wide = any(few) and not all(few) and len(self.graph.nodes) < LONG_GRAPH
        others = [*(["last"] * bool(found)), *(["wide"] * wide)]
        names = ["first", *(others if self.offers is None or self.offers.narrow else [])]  # else cuDNN might take TF32
        names = [name for name in names if self.plan({"layout": name}).written]
        if "first" not in names:  # else the module is the library's alone, which kernels of ours may cost too much
            names = [name for name in names if self._moved(name) <= self._moved("first")]
        if any(isinstance(kernel.program, Convolution) for kernel in self.plan({"layout": "kernel"}).kernels):
            names.append("kernel")
        return sorted(names, key=lambda name: (self._moved(name), name)) or ["first"]

    def _moved(self, layout: str) -> int:
        """What a plan is predicted to take, in bytes of a copy."""
        return worth(self.plan({"layout": layout}), self.offers)

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
        if small and len(self._layouts) > 1:
            genes.append(strategy("layout", [(name, *LAYOUTS[name]) for name in self._layouts]))
        spared = next((layout for layout in self._layouts if self._spares(layout)), None) if small else None
        if spared:
            genes.append(LONE)
        if small and first.rungs:
            genes.append(CONVOLUTION)
        ways = [*self._products, *(["library"] if _products(first) else [])]
        if small and len(ways) > 1 and self.plan({"products": ways[-1]}).kernels:
            genes.append(strategy("products", [(name, *PRODUCTS[name]) for name in ways]))
        variants = {family: self._variants(family, program) for family, program in self._largest.items()}
        numbered: list[Genes] = [dict.fromkeys(variants, n) for n in range(1, 6)]
        others = [*genes, *(gene for family, gene in variants.items() if family != "product")]
        if self._product and prod(len(g.choices) for g in [*others, *self._product.genes]) <= MANY:
            del variants["product"]
            variants |= {g.name: replace(g, name=f"product_{g.name}") for g in self._product.genes}
            numbered = [{**numbers, **self._prefixed(n)} for n, numbers in enumerate(numbered, 1)]
        layouts: list[Genes] = [{"layout": name} for name in self._layouts[1:]]
        lone: Genes = {"lone": "pytorch", "layout": spared or self._layouts[0]}
        soon: list[Genes] = [{"convolution": "library"}, {"products": "bold"}, *layouts[:1], *numbered[:2]]
        library: list[Genes] = [{"bias": "call"}, lone, *numbered[2:], {"products": "library"}]
        return starting([*genes, *variants.values()], [*soon, *layouts[1:], *library])

    def _spares(self, layout: str) -> bool:
        """Whether some kernels of a layout save no traffic, and others do."""
        all_of, some = (len(self.plan({"layout": layout, "lone": lone}).kernels) for lone in ("kernel", "pytorch"))
        return 0 < some < all_of

    @cached_property
    def _largest(self) -> dict[str, Routine]:
        """Of each family the kernel that moves most."""
        found: dict[str, Routine] = {}
        kernels = [kernel for layout in self._layouts[:1] for kernel in self.plan({"layout": layout}).kernels]
        if "kernel" in self._layouts:
            ours = self.plan({"layout": "kernel"}).kernels
            kernels += [kernel for kernel in ours if isinstance(kernel.program, Convolution)]
        for kernel in sorted(kernels, key=lambda kernel: -kernel.moved):
            found.setdefault(kernel.program.variety, kernel.program)
        return found

    @cached_property
    def _product(self) -> Space | None:
        """What can be varied in the largest product."""
        largest = self._largest.get("product")
        return self.target.space(largest, self.device) if largest else None

    def _prefixed(self, start: int) -> Genes:
        """A starting point of the largest product, by the names of this space."""
        assert self._product is not None
        starts = self._product.starts
        return {f"product_{name}": value for name, value in starts[start % len(starts)].items()}

    def _variants(self, family: str, program: Routine) -> Gene:
        """One gene for all kernels of a family: with which of its starting points each is written."""
        space = self.target.space(program, self.device)
        choices = []
        for n, start in enumerate(space.starts):
            whys = [gene.choice(start[gene.name]).why for gene in space.genes]
            choices.append(GeneChoice(n, f"{family}: {space.title(start)}", whys[0]))
        return Gene(family, tuple(choices))

    def _chosen(self, program: Routine, genes: Mapping[str, int | str]) -> Genes:
        """The genes of one kernel: a starting point of its own, or what it knows of the products' genes."""
        space = self.target.space(program, self.device)
        start = space.starts[int(genes.get(program.variety, 0)) % len(space.starts)]
        if not isinstance(program, Product):
            return start
        given = {gene.name: genes[name] for gene in space.genes if (name := f"product_{gene.name}") in genes}
        known = {gene.name: given[gene.name] for gene in space.genes if given.get(gene.name) in gene.values}
        return {**start, **known}

    def write(self, problem: str, genes: Mapping[str, int | str]) -> str:
        plan = self.plan(genes)
        if not plan.written:
            raise NotCovered("these choices leave every call to PyTorch.")
        most = max(plan.kernels, key=lambda kernel: kernel.moved, default=None)
        flags = self.target.flags(self._chosen(most.program, genes) if most else {})
        title = self.space.title(genes)

        def emit(program: Routine) -> Source:
            return self.target.source(program, self._chosen(program, genes))

        return module.assemble(problem, title, plan, emit, flags, self.target)

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


def _products(plan: Plan) -> int:
    return sum(isinstance(kernel.program, Product | Attention) for kernel in plan.kernels)


def kept(reasons: Mapping[str, str]) -> tuple[KeptRegion, ...]:
    """What stays PyTorch's, as a run records it."""
    return tuple(KeptRegion(part, reason) for part, reason in reasons.items())
