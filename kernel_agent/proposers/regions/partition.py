"""The cut: calls that a kernel of ours can cover are joined into regions, as long as one kernel covers the whole."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.regions.algebra import reassociated
from kernel_agent.proposers.regions.attended import attended
from kernel_agent.proposers.regions.plan import Kernel, Plan, Step, specs
from kernel_agent.proposers.regions.reading import reads_apart, reads_lines, reads_well
from kernel_agent.proposers.regions.rewrite import CONVOLUTIONS, Rewritten, constants, effects, functional, rewritten
from kernel_agent.proposers.regions.rising import commuted
from kernel_agent.proposers.regions.rungs import is_rung
from kernel_agent.proposers.regions.slices import sliced
from kernel_agent.proposers.regions.together import together
from kernel_agent.proposers.regions.turner import NORMS
from kernel_agent.proposers.regions.views import is_view, shown, storages
from kernel_agent.proposers.templates.arithmetic import covered
from kernel_agent.proposers.templates.attention import is_attention
from kernel_agent.proposers.templates.convolution import is_convolution
from kernel_agent.proposers.templates.families import covers
from kernel_agent.proposers.templates.forms import is_product
from kernel_agent.proposers.templates.graph import Graph, Leaf, Node, Ref
from kernel_agent.proposers.templates.lowering import mentions, names
from kernel_agent.proposers.templates.product import TRIANGLES
from kernel_agent.proposers.templates.recurrent import is_item, is_recurrent
from kernel_agent.proposers.templates.routine import Routine

WINDOWS = ("windows_max", "windows_avg", "windows_max_last", "windows_avg_last")
TERMS = 400  # of a program at most: what is longer takes a compiler minutes
KERNELS = 64  # different programs of a module at most: 24 took nvcc 6 s of a core
Build = Callable[[Graph], Routine]


def cut(
    graph: Graph,
    *,
    bias: bool,
    long_rows: bool,
    lone: bool = True,
    kinds: frozenset[str] = frozenset(),
    build: Build = covered,
) -> Plan:
    """The plan of a module.

    `bias`, `long_rows`, `kinds` are those of `rewrite.rewritten`; without `lone` a region that saves no traffic is
    left to PyTorch. `build` makes one kernel's program of a region's graph or raises NotCovered. What a rule wrote and
    no kernel covers is PyTorch's call again as it was.
    """
    spared = frozenset[str]()
    graph, rising = commuted(functional(graph))
    graph, algebra = reassociated(graph)
    graph, kept = attended(graph, build)
    while True:
        after = rewritten(graph, bias, long_rows, spared, kinds)
        regions = _Regions(after.graph, build)
        regions.grow()
        regions.choose(lone)
        plan = regions.plan((*rising, *algebra, *kept, *after.rules))
        broken = frozenset(_left(plan, after, graph)) - spared
        if not broken:
            plan = together(plan)
            return sliced(plan) if "gpu" in kinds else plan
        spared |= broken


def _left(plan: Plan, after: Rewritten, before: Graph) -> Iterator[str]:
    """The module's calls that a rule rewrote in vain: PyTorch computes what came of them, or a kernel nothing else.

    A convolution stays PyTorch's in other words; they are in vain where no kernel reads what came of it, or not well.
    """
    convolutions = {node.name for node in before.nodes if names(node.op)[0] in CONVOLUTIONS}
    moved = {
        node.name for node in plan.graph.nodes if node.name in after.origin and after.origin[node.name] == node.name
    }
    ours = {name for kernel in plan.kernels for name in kernel.writes}
    for step in plan.steps:
        if isinstance(step, Kernel):
            read = (name for name in step.reads if name not in ours and after.origin.get(name) in convolutions)
            yield from (after.origin[name] for name in read if not reads_well(step, name))
            if set(step.nodes) <= moved and all(plan.node(name).op == "aten.add.Tensor" for name in step.nodes):
                yield from (after.origin[name] for name in step.nodes)
        elif (
            step.name in after.origin
            and not is_rung(step)
            and (
                step.name in convolutions or (step.name in plan.reasons and after.origin[step.name] not in convolutions)
            )
        ):
            yield after.origin[step.name]


class _Regions:
    def __init__(self, graph: Graph, build: Build) -> None:
        self.graph, self.build = graph, build
        self.nodes = {node.name: node for node in graph.nodes}
        self.position = {node.name: i for i, node in enumerate(graph.nodes)}
        self.specs = specs(graph)
        self.shown = shown(graph)
        self.constants = constants(graph)
        self.virtual = self.constants | {n.name for n in graph.nodes if self.shown[n.name] != n.name or is_view(n)}
        self.read = {node.name: mentions([node.args, node.kwargs]) for node in graph.nodes}
        self.reasons: dict[str, str] = {}
        self.region: dict[str, int] = {}
        self.members: dict[int, set[str]] = {}
        self.programs: dict[int, Routine] = {}

    @cached_property
    def real(self) -> list[Node]:
        """The calls that compute, in order."""
        return [node for node in self.graph.nodes if node.name not in self.virtual]

    @cached_property
    def sources(self) -> dict[str, list[str]]:
        """For each call the computing ones and leaves that it reads, through whatever shows them."""
        found: dict[str, list[str]] = {}
        for node in self.graph.nodes:
            found[node.name] = list(dict.fromkeys(s for name in self.read[node.name] for s in self._behind(name)))
        return found

    def _behind(self, name: str) -> list[str]:
        """What a mention reads; a view may read more than what it shows, such as the shape of another tensor."""
        if name not in self.virtual:
            return [name]
        return [] if name in self.constants else [self.shown[name]]

    @cached_property
    def after(self) -> dict[str, list[str]]:
        """Which computing calls must come after each: those that read it, and those that an effect orders."""
        found: dict[str, list[str]] = {node.name: [] for node in self.real}
        for node in self.real:
            for source in self.sources[node.name]:
                if source in found:
                    found[source].append(node.name)
        memory, touching = storages(self.graph), dict[str, list[Node]]()
        for node in self.real:
            for where in {memory[name] for name in (node.name, *self.sources[node.name])}:
                touching.setdefault(where, []).append(node)
        for node, where in effects(self.graph):
            for other in touching.get(where, ()):
                if other is node:
                    continue
                first, second = sorted((node, other), key=lambda n: self.position[n.name])
                found[first.name].append(second.name)
        return found

    @cached_property
    def wanted(self) -> dict[str, set[str]]:
        """For each computing call its readers; the empty name is the caller of the module."""
        found: dict[str, set[str]] = {node.name: set() for node in self.real}
        for node in self.real:
            for source in self.sources[node.name]:
                if source in found:
                    found[source].add(node.name)
        for name in self.graph.outputs:
            for source in self._behind(name):
                if source in found:
                    found[source].add("")
        return found

    @cached_property
    def live(self) -> set[str]:
        """The computing calls that a result or an effect rests on."""
        stack = [s for name in self.graph.outputs for s in self._behind(name)]
        stack += [node.name for node, _ in effects(self.graph)]
        found = set[str]()
        while stack:
            name = stack.pop()
            if name in self.nodes and name not in found:
                found.add(name)
                stack += self.sources[name]
        return found

    def grow(self) -> None:
        """Each call in order joins the regions of what it reads, all of them where one kernel can, or begins one."""
        changing = {node.name for node, _ in effects(self.graph)}
        for number, node in enumerate(self.real):
            if node.name not in self.live or node.name in changing or node.op == "_operator.getitem" or is_rung(node):
                if names(node.op)[0] in NORMS and node.name in self.live:
                    self.reasons[node.name] = "no kernel of ours would read its statistics."
                continue
            self.members[number] = {node.name, *self._items(node)}
            self.region.update(dict.fromkeys(self.members[number], number))
            try:
                self.programs[number] = self._program(self.members[number])
            except NotCovered as fault:
                self.reasons[node.name] = str(fault)
            if number in self.programs or names(node.op)[0] in TRIANGLES:
                self._join(number, node)
            if number in self.programs:
                self.reasons.pop(node.name, None)
            else:
                for name in self.members.pop(number):
                    del self.region[name]

    def _items(self, node: Node) -> Iterator[str]:
        """The calls that name the tensors of a recurrent network, whose kernel writes those that are read."""
        if is_recurrent(node):
            yield from (name for name in self.after[node.name] if is_item(self.nodes[name], {node.name: node}))

    def _join(self, number: int, node: Node) -> None:
        near = list(dict.fromkeys(self.region[s] for s in self.sources[node.name] if s in self.region))
        tries = [near] if len(near) > 1 else []
        tries += [[one] for one in reversed(near)]
        for some in tries:
            union = set(self.members[number]).union(*(self.members[one] for one in some if one in self.members))
            if any(one not in self.members for one in some) or self._returns(union):
                continue
            try:
                program = self._program(union)
            except NotCovered:
                continue
            for one in some:
                del self.members[one], self.programs[one]
            self.members[number], self.programs[number] = union, program
            self.region.update(dict.fromkeys(union, number))
            if len(some) > 1:
                return
            near = [one for one in near if one in self.members]

    def _returns(self, some: set[str]) -> bool:
        """Whether a way out of these calls leads back into them.

        Calls behind the last of them are in no region yet, so no way leads back from there.
        """
        end = max(self.position[name] for name in some)
        stack, seen = [n for name in some for n in self.after[name] if n not in some], set[str]()
        while stack:
            name = stack.pop()
            if name in seen or self.position[name] > end:
                continue
            seen.add(name)
            region = self.region.get(name)
            for follower in self.after[name] if region is None else self._out_of(region):
                if follower in some:
                    return True
                stack.append(follower)
        return False

    def _out_of(self, region: int) -> Iterable[str]:
        return (n for name in self.members[region] for n in self.after[name])

    def _program(self, some: set[str]) -> Routine:
        """The program of a region. Raises NotCovered where no kernel computes it in one go.

        An operand of a product, a convolution or a recurrent network that no kernel reads through its views is a tensor
        of its own, as PyTorch shows it.
        """
        try:
            return self._built(some, set())
        except NotCovered:
            products = [node for name in some if _reads_as_it_lies(node := self.nodes[name])]
            operands = {name for node in products for name in self.read[node.name]} & self.virtual
            if not operands or any(some & {*self._behind(name), *self.sources[name]} for name in operands):
                raise
            return self._built(some, operands)

    def _built(self, some: set[str], apart: set[str]) -> Routine:
        """The program of a region that reads through all views but those `apart`."""
        needed, stack = set(some), [name for one in some for name in self.read[one]]
        leaves = dict[str, Leaf]()
        while stack:
            name = stack.pop()
            if name in self.virtual and name not in apart and self._followed(name):
                needed.add(name)
                stack += self.read[name]
            elif name not in some and name not in leaves:
                leaves[name] = self._leaf(name)
        inside = [self.nodes[name] for name in sorted(needed, key=self.position.__getitem__)]
        outputs = tuple(n for n in sorted(some, key=self.position.__getitem__) if self.wanted[n] - some)
        if sum(names(node.op)[0] in WINDOWS for node in inside) > 1:
            raise NotCovered("windows of windows are many loads for each result.")
        if not outputs:
            raise NotCovered("nobody reads what it gives.")
        order = sorted(leaves, key=lambda name: (self.position.get(name, -1), name))
        region = Graph((), {name: leaves[name] for name in order}, tuple(inside), outputs, "tuple")
        program = self.build(region)
        if len(program.terms) > TERMS:
            raise NotCovered("a kernel of so many operations takes a compiler minutes.")
        if any(node.op == "aten.channels_first.default" for node in inside) and not reads_lines(program):
            raise NotCovered("rows that are folded lie across what is read.")
        if reads_apart(program):
            raise NotCovered("elements of the rows that are folded lie apart in memory.")
        if not program.leaves:
            raise NotCovered("nothing is read here: PyTorch makes constants.")
        return program

    def _followed(self, name: str) -> bool:
        """Whether a kernel reads through a view, or the view's own tensor: one of several, such as a call's second."""
        node = self.nodes[name]
        return covers(names(node.op)[0]) or node.op == "_operator.getitem"

    def _leaf(self, name: str) -> Leaf:
        if name in self.graph.leaves:
            return self.graph.leaves[name]
        if name not in self.specs:
            raise NotCovered(f"{self.nodes[name].op} returns no tensor.")
        return Leaf(name, self.specs[name], None)

    def choose(self, lone: bool) -> None:
        """Drop regions that save nothing where they are not wanted, and those that are one kernel too many."""
        plan = Plan(self.graph, (), {})  # for what it knows of the graph
        gains = {}
        for number, program in list(self.programs.items()):
            kernel = Kernel(tuple(self.members[number]), program)
            gains[number] = plan.eager_bytes(kernel.nodes) - kernel.moved + program.spares
            if not lone and gains[number] <= 0:
                self._drop(number, "a kernel of ours would save no memory traffic")
        kept, alike = sorted(self.members, key=lambda n: -gains[n]), set[object]()
        for number in kept:
            program = self.programs[number]
            key = program.likeness
            if key not in alike and len(alike) == KERNELS:
                self._drop(number, f"{KERNELS} kernels that save more traffic come first")
            alike.add(key) if number in self.members else None

    def _drop(self, number: int, why: str) -> None:
        for name in self.members.pop(number):
            self.reasons[name] = why
            del self.region[name]
        del self.programs[number]

    def plan(self, rules: tuple[str, ...]) -> Plan:
        """All steps in an order that every call's reads and effects allow, near to the module's own."""
        items: dict[object, list[str]] = {}
        for node in self.real:
            if node.name in self.live:
                items.setdefault(self.region.get(node.name, node.name), []).append(node.name)
        item_of = {name: item for item, members in items.items() for name in members}
        waits = dict.fromkeys(items, 0)
        follow: dict[object, set[object]] = {item: set() for item in items}
        for name, item in item_of.items():
            for later in self.after[name]:
                other = item_of.get(later)
                if other is not None and other != item and other not in follow[item]:
                    follow[item].add(other)
                    waits[other] += 1
        steps = [self._step(items[item]) for item in _ordered(items, waits, follow, self.position)]
        return Plan(self.graph, tuple(self._with_views(steps)), self._told(), rules)

    def _step(self, members: list[str]) -> Step:
        number = self.region.get(members[0])
        return self.nodes[members[0]] if number is None else Kernel(tuple(members), self.programs[number])

    def _with_views(self, steps: list[Step]) -> list[Step]:
        """The steps, and before each call of PyTorch the views of its arguments that have not been shown yet."""
        placed, made = set[str](), list[Step]()

        def show(argument: object) -> None:
            for name in mentions(argument):
                if name in self.virtual and name not in placed:
                    placed.add(name)
                    show([self.nodes[name].args, self.nodes[name].kwargs])
                    made.append(self.nodes[name])

        for step in steps:
            if isinstance(step, Kernel):
                for name in step.reads:
                    show([Ref(name)]) if name in self.virtual else None
            else:
                show([step.args, step.kwargs])
            made.append(step)
        for name in self.graph.outputs:
            show([Ref(name)])
        return made

    def _told(self) -> Mapping[str, str]:
        return {name: why for name, why in self.reasons.items() if name in self.live}


def _ordered(
    items: Mapping[object, list[str]],
    waits: dict[object, int],
    follow: Mapping[object, set[object]],
    position: Mapping[str, int],
) -> list[object]:
    places = {item: max(position[name] for name in members) for item, members in items.items()}
    ready = [(places[item], item) for item, count in waits.items() if not count]
    by_place, order = {place: item for item, place in places.items()}, list[object]()
    heap = [place for place, _ in ready]
    heapq.heapify(heap)
    while heap:
        item = by_place[heapq.heappop(heap)]
        order.append(item)
        for other in follow[item]:
            waits[other] -= 1
            if not waits[other]:
                heapq.heappush(heap, places[other])
    assert len(order) == len(items), "the regions wait for one another"
    return order


def _reads_as_it_lies(node: Node) -> bool:
    return is_product(node) or is_convolution(node) or is_attention(node) or is_recurrent(node)
