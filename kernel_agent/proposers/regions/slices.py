"""Concatenations without a copy: kernels write parts where they lie in the whole, and read them there.

`torch.cat` reads all parts and writes them once more. Where kernels of ours make parts, room for the whole is made
first, and they write into slices of it; other parts are copied in. A concatenation that begins with all that an earlier
one has, as in each layer of a DenseNet, is the same memory grown: the earlier one is a slice of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.regions.concatenations import Concatenations, Part
from kernel_agent.proposers.regions.plan import COPY, ROOM, Kernel, Plan, Slice, Step, traffic
from kernel_agent.proposers.regions.reading import reads_apart
from kernel_agent.proposers.templates.arithmetic import covered
from kernel_agent.proposers.templates.centred import Centred
from kernel_agent.proposers.templates.convolution import Convolution
from kernel_agent.proposers.templates.graph import Graph, Leaf, Node, Ref
from kernel_agent.proposers.templates.lowering import mentions
from kernel_agent.proposers.templates.program import Program
from kernel_agent.proposers.templates.routine import Routine
from kernel_agent.proposers.templates.slabs import laid, reading
from kernel_agent.proposers.templates.strides import Slab

TITLE = "parts of a concatenation are written where they lie in it"
LAUNCH = 1 << 23  # bytes that a large device copies while it launches a kernel


def sliced(plan: Plan) -> Plan:
    """The plan with concatenations that PyTorch would copy made of slices, where that moves fewer bytes."""
    slicer = _Slicer(plan, Concatenations(plan))
    for root in slicer.roots:
        slicer.take(root)
    try:
        return slicer.plan() if slicer.slices else plan
    except NotCovered:  # a kernel that reads each of several slices, and not all of them together
        return plan


@dataclass
class _Slicer:
    """Says in `slices` where tensors lie, and in `copied` what takes the place of each concatenation's call."""

    before: Plan
    cats: Concatenations
    slices: dict[str, Slice] = field(default_factory=dict)
    copied: dict[str, list[Node]] = field(default_factory=dict)

    @cached_property
    def inner(self) -> dict[str, str]:
        """In which later concatenation an earlier one lies, where all who read it can read it there."""
        found = dict[str, str]()
        for cat, parts in self.cats.parts.items():
            for part in parts:
                old = part.shows
                new = old in self.cats.calls and old not in found and self.cats.dim(old) == self.cats.dim(cat)
                if new and self._followed(old, self._slice(cat, 0, part)):
                    found[old] = cat
        return found

    @property
    def roots(self) -> list[str]:
        """The concatenations that lie in no other."""
        return [cat for cat in self.cats.calls if cat not in self.inner]

    def take(self, root: str) -> None:
        """Make a concatenation, and all that lie in it, of slices, where that is worth it."""
        found, copies, spared = dict[str, Slice](), dict[str, list[Node]](), 0
        for cat, at in self._inside(root, 0):
            copies[cat] = []
            spared += traffic(self.cats.calls[cat], self.before.specs) + LAUNCH
            for part in self.cats.parts[cat]:
                place = self._slice(root, at, part)
                free = part.shows not in found and part.shows not in self.slices
                if free and (self.inner.get(part.shows) == cat or self._written(part.shows, place)):
                    found[part.shows] = place
                else:
                    copies[cat].append(self._copy(f"{cat}_copy{len(copies[cat])}", part, place))
                    spared -= traffic(copies[cat][-1], self.before.specs) + LAUNCH
        if spared > 0:
            self.slices |= found
            self.copied |= copies

    def _slice(self, whole: str, at: int, part: Part) -> Slice:
        return Slice(whole, self.cats.dim(whole), at + part.start, at + part.end)

    def _copy(self, name: str, part: Part, place: Slice) -> Node:
        args = (Ref(place.whole), place.dim, place.start, place.end, Ref(part.said))
        return Node(name, COPY, args, {}, (self.before.specs[part.said],))

    def _inside(self, cat: str, at: int) -> Iterator[tuple[str, int]]:
        """A concatenation behind those that lie in it, and where in the outermost each begins, at the first place."""
        lies = {part.shows: part.start for part in reversed(self.cats.parts[cat]) if self.inner.get(part.shows) == cat}
        for inner, start in reversed(lies.items()):
            yield from self._inside(inner, at + start)
        yield cat, at

    def _written(self, name: str, place: Slice) -> bool:
        """Whether a kernel writes a tensor into a slice, and all who read it can read it there."""
        maker = next((kernel for kernel in self.before.kernels if name in kernel.writes), None)
        if maker is None or not self._followed(name, place):
            return False
        try:
            laid(maker.program, {name: self._slab(place)})
        except NotCovered:
            return False
        return True

    def _followed(self, name: str, place: Slice) -> bool:
        """Whether all who read a tensor can read it as a slice: concatenations, and kernels that read as well so."""
        for reader in self.cats.readers[name]:
            if reader is None or (isinstance(reader, Node) and reader.name not in self.cats.calls):
                return False
            try:
                self._reading(reader.program, {name: place}) if isinstance(reader, Kernel) else None
            except NotCovered:
                return False
        return True

    def _reading(self, program: Routine, slices: Mapping[str, Slice]) -> Routine:
        """The same kernel, which finds what it reads in slices. Raises NotCovered where it would not read as well."""
        graph = self._through(program.graph, slices)
        if isinstance(program, Convolution):
            return reading(program, graph, {name: self._slab(place) for name, place in slices.items()})
        if not isinstance(program, Program | Centred):
            raise NotCovered("kernels of products read no slices.")
        found = covered(graph)
        if found.variety != program.variety or found.chains != program.chains or reads_apart(found):
            raise NotCovered("this kernel would not read slices as well.")
        return found

    def _through(self, graph: Graph, slices: Mapping[str, Slice]) -> Graph:
        """The graph over the whole tensors of which its leaves are slices."""
        leaves, nodes = dict[str, Leaf](), list[Node]()
        for name, leaf in graph.leaves.items():
            place = slices.get(self.cats.shows(name))
            if place is None:
                leaves[name] = leaf
                continue
            leaves[place.whole] = Leaf(place.whole, self.before.specs[place.whole], None)
            args = (Ref(place.whole), place.dim, place.start, place.end)
            nodes.append(Node(name, "aten.slice.Tensor", args, {}, (leaf.spec,)))
        return replace(graph, leaves=leaves, nodes=(*nodes, *graph.nodes))

    def _slab(self, place: Slice) -> Slab:
        """Where in memory a slice lies."""
        shape = self.before.specs[place.whole].shape
        inner = prod(shape[place.dim + 1 :])
        return Slab((place.end - place.start) * inner, shape[place.dim] * inner, place.start * inner)

    def plan(self) -> Plan:
        """The plan with what was taken. Raises NotCovered where a kernel cannot read all its slices together."""
        steps, made = list[Step](), set[str]()
        for step in (one for old in self.before.steps for one in self._instead(old)):
            wholes = dict.fromkeys(self._wholes(step))
            steps += [*(self._room(whole) for whole in wholes if whole not in made), step]
            made |= {*wholes}
        names = (*self.before.graph.leaves, *(node.name for node in self.before.graph.nodes))
        slices = {name: self.slices[of] for name in names if (of := self.cats.shows(name)) in self.slices}
        reasons = {name: why for name, why in self.before.reasons.items() if name not in self.copied}
        rules = (*self.before.rules, TITLE)
        return replace(self.before, steps=tuple(steps), reasons=reasons, rules=rules, slices=slices)

    def _instead(self, step: Step) -> Sequence[Step]:
        """What takes the place of a step: copies that of a concatenation, nothing that of what shows a slice."""
        if isinstance(step, Kernel):
            return [self._kernel(step)]
        return self.copied.get(step.name, [] if self.cats.shows(step.name) in self.slices else [step])

    def _wholes(self, step: Step) -> list[str]:
        """The tensors into whose slices a step writes."""
        if isinstance(step, Kernel):
            return [self.slices[name].whole for name in step.writes if name in self.slices]
        return mentions(step.args)[:1] if step.op == COPY else []

    def _kernel(self, kernel: Kernel) -> Kernel:
        """A kernel that reads and writes slices where its tensors lie in some."""
        read = {of: self.slices[of] for name in kernel.reads if (of := self.cats.shows(name)) in self.slices}
        program = self._reading(kernel.program, read) if read else kernel.program
        slabs = {name: self._slab(self.slices[name]) for name in kernel.writes if name in self.slices}
        return Kernel(kernel.nodes, laid(program, slabs) if slabs else program)

    def _room(self, whole: str) -> Node:
        """The call that makes room for a concatenation, by its name."""
        spec = self.before.specs[whole]
        how = {"dtype": {"dtype": spec.dtype}, "device": {"repr": "device(type='cuda')"}}
        return Node(whole, ROOM, (list(spec.shape),), how, (spec,))
