"""The concatenations of a plan: their parts, who reads them, and which of them an earlier one begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from kernel_agent.proposers.regions.plan import Kernel, Plan, Step
from kernel_agent.proposers.regions.rewrite import effects
from kernel_agent.proposers.regions.views import is_view, storages
from kernel_agent.proposers.templates.graph import Node
from kernel_agent.proposers.templates.lowering import SAME, mentions, names


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a concatenation: the tensor that the call names, the one whose elements that shows, and where it is."""

    said: str
    shows: str
    start: int
    end: int


@dataclass(frozen=True)
class Concatenations:
    """What is known of the concatenations in a plan that are calls of PyTorch."""

    plan: Plan

    @cached_property
    def _same(self) -> dict[str, str]:
        found = dict[str, str]()
        for node in self.plan.graph.nodes:
            of, base = mentions(node.args)[:1], names(node.op)[0]
            if of and (base in SAME or (base == "dropout" and is_view(node))):
                found[node.name] = found.get(of[0], of[0])
        return found

    def shows(self, name: str) -> str:
        """The tensor that another shows whole, in its shape and order."""
        return self._same.get(name, name)

    @cached_property
    def calls(self) -> dict[str, Node]:
        """Those of tensors of one dtype and rank that nothing changes in place, in order."""
        memory = storages(self.plan.graph)
        changed = {where for _, where in effects(self.plan.graph)}
        steps = [step for step in self.plan.steps if isinstance(step, Node) and names(step.op)[0] == "cat"]
        found = (step for step in steps if self._is_plain(step))
        return {node.name: node for node in found if not changed & {memory[n] for n in (node.name, *_parts(node))}}

    def _is_plain(self, node: Node) -> bool:
        specs = [self.plan.specs.get(name) for name in _parts(node)]
        rank, dtype = len(node.spec.shape), node.spec.dtype
        return not node.kwargs and all(spec and spec.dtype == dtype and len(spec.shape) == rank for spec in specs)

    def dim(self, name: str) -> int:
        """The dimension along which parts follow each other."""
        node = self.calls[name]
        given: int = [*node.args, 0][1]
        return given % len(node.spec.shape)

    @cached_property
    def parts(self) -> dict[str, list[Part]]:
        """The parts of each; all that an earlier one has are one part, which that one shows."""
        found, listed = dict[str, list[Part]](), dict[str, list[str]]()
        for name, node in self.calls.items():
            said = _parts(node)
            shown = [self.shows(part) for part in said]
            begins = [old for old, some in listed.items() if len(some) < len(shown) and shown[: len(some)] == some]
            begins = [old for old in begins if self.dim(old) == self.dim(name)]
            listed[name] = shown
            if begins:
                old = max(begins, key=lambda old: len(listed[old]))
                said, shown = ([old, *some[len(listed[old]) :]] for some in (said, shown))
            found[name] = self._placed(said, shown, self.dim(name))
        return found

    def _placed(self, said: Sequence[str], shown: Sequence[str], dim: int) -> list[Part]:
        found, at = list[Part](), 0
        for name, of in zip(said, shown, strict=True):
            end = at + self.plan.specs[name].shape[dim]
            found.append(Part(name, of, at, end))
            at = end
        return found

    @cached_property
    def readers(self) -> dict[str, list[Step | None]]:
        """Who reads each tensor, through whatever shows it whole too; None is the caller of the module."""
        found: dict[str, list[Step | None]] = {name: [] for name in self.plan.specs}
        for step in self.plan.steps:
            if isinstance(step, Node) and step.name in self._same:
                continue
            reads = step.reads if isinstance(step, Kernel) else mentions([step.args, step.kwargs])
            for name in dict.fromkeys(map(self.shows, reads)):
                found.setdefault(name, []).append(step)
        for name in self.plan.graph.outputs:
            found.setdefault(self.shows(name), []).append(None)
        return found


def _parts(node: Node) -> list[str]:
    return mentions(node.args[0])
