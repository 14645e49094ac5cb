"""What a plan is predicted to take, in bytes that a copy moves in that time: so that plans can be compared."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from kernel_agent.proposers.regions.channels import layout_passes
from kernel_agent.proposers.regions.plan import Kernel, Plan, traffic
from kernel_agent.proposers.regions.views import is_view
from kernel_agent.proposers.templates.arithmetic import Offers
from kernel_agent.proposers.templates.attention import Attention
from kernel_agent.proposers.templates.convolution import CONVOLUTIONS, Convolution
from kernel_agent.proposers.templates.graph import Node, Spec
from kernel_agent.proposers.templates.lowering import names


def worth(plan: Plan, offers: Offers | None) -> int:
    """Bytes of a plan's kernels and calls, with what cuDNN moves to change layouts.

    Where rates are known, a convolution that computes for longer than it moves counts for as long as it computes.
    """
    calls = [step for step in plan.steps if isinstance(step, Node) and not is_view(step)]
    moved = sum(_of_kernel(kernel, offers) for kernel in plan.kernels)
    moved += sum(_of_call(node, plan.specs, offers) for node in calls)
    return moved + layout_passes(calls, plan.specs)


def _of_kernel(kernel: Kernel, offers: Offers | None) -> int:
    program = kernel.program
    if offers is not None and isinstance(program, Attention):
        return offers.bytes_in(offers.attention_us(program, program.arithmetics[0]))
    if offers is None or not isinstance(program, Convolution):
        return kernel.moved
    return offers.bytes_in(offers.convolution_us(program, program.arithmetics[0]))


def _of_call(node: Node, known: Mapping[str, Spec], offers: Offers | None) -> int:
    moved, base = traffic(node, known), names(node.op)[0].removesuffix("_last")
    if offers is None or base not in CONVOLUTIONS:
        return moved
    if len(node.args) > 6 and node.args[6] != 1:
        return moved
    at = -1 if names(node.op)[0].endswith("_last") else 1
    made, given = node.spec.shape[at], known[node.args[0].node].shape[at]
    taps = prod(known[node.args[1].node].shape[2:])
    arithmetic = offers.arithmetic_us(prod(node.spec.shape) // made, made, given, taps)
    return max(moved, offers.bytes_in(arithmetic))
