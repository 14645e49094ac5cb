"""Bytes and times of a plan of the templates, counted and predicted without a device (see first_ideas.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.regions.channels import layout_passes
from kernel_agent.proposers.regions.plan import ROOM, Kernel, Plan, specs, traffic
from kernel_agent.proposers.regions.rewrite import CONVOLUTIONS
from kernel_agent.proposers.regions.turner import is_by_channel
from kernel_agent.proposers.regions.views import CONSTANTS, is_view
from kernel_agent.proposers.templates.arithmetic import ARITHMETICS, Offers, half_rate, offers
from kernel_agent.proposers.templates.attention import Attention
from kernel_agent.proposers.templates.forms import is_product
from kernel_agent.proposers.templates.graph import Graph, Leaf, Node, Spec
from kernel_agent.proposers.templates.lowering import mentions, names
from kernel_agent.proposers.templates.product import Product, product_of
from kernel_agent.proposers.templates.recurrent import Recurrent
from kernel_agent.proposers.templates.recurrent_tile import ranked
from kernel_agent.run.precision import Way
from kernel_agent.run.types import Device

ALONE = {*CONVOLUTIONS, "scaled_dot_product_attention", "lstm", "gru", "rnn_tanh"}  # what no compiler fuses
LAUNCH_US = 3.0
TF32_SHARE = 0.5  # of the measured rate that cuDNN's convolutions are taken to reach


@dataclass(frozen=True, slots=True)
class Prediction:
    """What one call of a plan moves and takes."""

    kernels: int
    calls: tuple[str, ...]
    plan: int
    us: float


def predicted(plan: Plan, device: Device, narrow: bool) -> Prediction:
    """Bytes and microseconds of a plan's steps."""
    calls = [step for step in plan.steps if isinstance(step, Node) and not _is_free(step)]
    layouts = sum(layout_passes([node], plan.specs) for node in calls)
    moved = sum(kernel.moved for kernel in plan.kernels) + sum(traffic(node, plan.specs) for node in calls) + layouts
    us = sum(_kernel_us(kernel, device) for kernel in plan.kernels)
    us += sum(_call_us(node, plan.specs, device, narrow) for node in calls)
    return Prediction(len(plan.kernels), tuple(names(node.op)[0] for node in calls), moved, us)


def _is_free(node: Node) -> bool:
    return is_view(node) or names(node.op)[0] in CONSTANTS or node.op in ("_operator.getitem", ROOM)


def _kernel_us(kernel: Kernel, device: Device) -> float:
    program = kernel.program
    if isinstance(program, Recurrent):
        return next(iter(ranked(program.shape, device).values())).us(device)
    moving = kernel.moved / _copy(device) / 1e3
    if isinstance(program, Attention):
        return _ways(device).attention_us(program, program.arithmetics[0])
    if not isinstance(program, Product):
        return LAUNCH_US + moving
    every, name = _ways(device), program.arithmetics[0]
    rate = every.wide.get(name) or every.rates[name]
    return LAUNCH_US + max(moving, program.operations / rate / 1e6)


def _ways(device: Device) -> Offers:
    """The rates of all arithmetics."""
    found = offers(device, [Way(one.way, 1.0, "inside", None) for one in ARITHMETICS], True)
    assert found is not None
    return replace(found, half=half_rate(device))


def copied_us(moved: int, device: Device) -> float:
    """Microseconds of a kernel that does nothing but move these bytes."""
    return LAUNCH_US + moved / _copy(device) / 1e3


def _copy(device: Device) -> float:
    assert device.copy_gbps is not None
    return device.copy_gbps


def _call_us(node: Node, known: Mapping[str, Spec], device: Device, narrow: bool) -> float:
    moved = traffic(node, known) + layout_passes([node], known)
    base = names(node.op)[0].removesuffix("_last")
    rate = float(device.peaks["fp32_tflops"])
    if base in CONVOLUTIONS and narrow and not is_by_channel(node, known):
        rate = TF32_SHARE * float(device.peaks["tf32_tflops"])
    return LAUNCH_US + max(moved / _copy(device) / 1e3, _operations(node, known) / rate / 1e6)


def _operations(node: Node, known: Mapping[str, Spec]) -> float:
    """Multiplications and additions of a convolution or product; none are counted of other calls."""
    base = names(node.op)[0].removesuffix("_last")
    if base in CONVOLUTIONS:
        x, weight = (known[arg.node] for arg in node.args[:2])
        of = x if "transpose" in base else node.spec
        return 2.0 * prod(of.shape) * prod(weight.shape) / weight.shape[0]
    if base == "scaled_dot_product_attention":
        terms = known[node.args[0].node].shape[-1] / node.spec.shape[-1]
        return 2.0 * prod(node.spec.shape) * known[node.args[1].node].shape[-2] * (1 + terms)
    if is_product(node):
        leaves = {name: Leaf(name, known[name], None) for name in mentions([node.args, node.kwargs])}
        try:
            return product_of(Graph((), leaves, (node,), (node.name,), "tensor")).operations
        except NotCovered:
            return 0.0
    return 0.0


def bounds(graph: Graph) -> dict[str, int]:
    """Bytes of the module itself: `own`, `eager` and `fused`, as above."""
    known, shows = specs(graph), _shown(graph)
    used = [node for node in graph.nodes if not _is_free(node)]
    read = {shows.get(name, name) for node in used for name in mentions([node.args, node.kwargs])}
    own = sum(leaf.spec.bytes for name, leaf in graph.leaves.items() if name in read)
    own += sum(known[name].bytes for name in graph.outputs if name in known)
    eager = sum(traffic(node, known) for node in used) + layout_passes(used, known)
    return {"own": own, "eager": eager, "fused": _fused(graph, used, shows, known)}


def _shown(graph: Graph) -> dict[str, str]:
    """For each call the one whose elements it shows, itself where it computes."""
    shows: dict[str, str] = {}
    for node in graph.nodes:
        read = mentions(node.args)
        shows[node.name] = shows.get(read[0], read[0]) if _is_free(node) and read else node.name
    return shows


def _fused(graph: Graph, used: Sequence[Node], shows: Mapping[str, str], known: Mapping[str, Spec]) -> int:
    """Bytes between groups of calls, all but those ALONE joined to whom they read."""
    group: dict[str, str] = {}
    for node in (node for node in used if not _alone(node)):
        group[node.name] = node.name
        for source in (shows.get(name, name) for name in mentions([node.args, node.kwargs])):
            if source in group:
                old, new = group[source], group[node.name]
                group = {key: new if value == old else value for key, value in group.items()}
    moved, made = set[tuple[str, str, str]](), {node.name for node in used}
    for node in used:
        mine = group.get(node.name, node.name)
        for source in (shows.get(name, name) for name in mentions([node.args, node.kwargs])):
            if source in known and group.get(source, source) != mine:
                moved |= {(mine, "reads", source), (group.get(source, source), "writes", source)}
    moved |= {(group.get(name, name), "writes", name) for name in (shows.get(n, n) for n in graph.outputs)}
    return sum(known[name].bytes for _, what, name in moved if name in known and (what == "reads" or name in made))


def _alone(node: Node) -> bool:
    return is_product(node) or names(node.op)[0] in ALONE
