"""Calls that change one small tensor each, made as one call at the end: a launch each costs more than what it moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kernel_agent.proposers.regions.plan import Kernel, Plan, Step
from kernel_agent.proposers.regions.views import storages
from kernel_agent.proposers.templates.graph import Node, Ref
from kernel_agent.proposers.templates.lowering import mentions

FOREACH = {"aten.copy_.default": "copy", "aten.add_.Tensor": "add"}  # as torch._foreach_... has them
SMALL = 1 << 16  # elements of a tensor whose change is little more than a launch


def together(plan: Plan) -> Plan:
    """The plan with its changes of small parameters and buffers, such as a norm's running statistics, made at its end.

    A change is made there where no later step reads the tensor, or what the change returns. Those alike, of one dtype
    and by one number, are one call of `torch._foreach_copy_` or `torch._foreach_add_`, which launches one kernel for
    many tensors.
    """
    groups: dict[object, list[Node]] = {}
    memory = storages(plan.graph)
    for n, step in enumerate(plan.steps):
        if isinstance(step, Node) and _waits(plan, step, plan.steps[n + 1 :], memory):
            by = step.args[1] if step.op == "aten.add_.Tensor" else None
            groups.setdefault((step.op, step.spec.dtype, by), []).append(step)
    many = [some for some in groups.values() if len(some) > 1]
    gone = {step.name for some in many for step in some}
    kept = [step for step in plan.steps if isinstance(step, Kernel) or step.name not in gone]
    return replace(plan, steps=(*kept, *(_joined(some) for some in many))) if many else plan


def _waits(plan: Plan, step: Node, later: Sequence[Step], memory: Mapping[str, str]) -> bool:
    """Whether a step is such a change, and may be made at the end."""
    if step.op not in FOREACH or step.kwargs or len(step.args) != 2 or not isinstance(step.args[0], Ref):
        return False
    target, by = step.args
    leaf = plan.graph.leaves.get(target.node)
    if leaf is None or leaf.path is None or leaf.made or leaf.elements > SMALL:
        return False
    if step.op == "aten.copy_.default":
        if not isinstance(by, Ref) or by.node in plan.graph.leaves or plan.specs.get(by.node) != leaf.spec:
            return False
    elif not isinstance(by, int | float):
        return False
    own = {name for name, where in memory.items() if where == target.node}
    return not own & {*plan.graph.outputs} and not any(own & {*_reads(one)} for one in later)


def _reads(step: Step) -> Sequence[str]:
    return step.reads if isinstance(step, Kernel) else mentions([step.args, step.kwargs])


def _joined(some: Sequence[Node]) -> Node:
    first = some[0]
    by = first.args[1] if first.op == "aten.add_.Tensor" else [step.args[1] for step in some]
    args = ([step.args[0] for step in some], by)
    return replace(first, op=f"aten._foreach_{FOREACH[first.op]}_.default", args=args, outputs=())
