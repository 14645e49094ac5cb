"""Convolutions with channels last: their tensors lie as the tensor cores read them, and so does all that follows.

cuDNN's TF32 kernels read channels last. A convolution of tensors with channels first is one between two passes of
layout over its input and its result; with channels last, kernels of ours change the layout on their own way, and
between two convolutions nobody does. A tensor with channels last is written here as a dense one of the dimensions
(batch, places, channels), so that views and kernels know its layout by its shape.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from kernel_agent.proposers.regions.plan import specs
from kernel_agent.proposers.regions.turner import Turner, is_by_channel, is_convolution
from kernel_agent.proposers.regions.turning import RANKS, rule_of
from kernel_agent.proposers.regions.views import is_in_place
from kernel_agent.proposers.templates.graph import Graph, Node, Spec

TITLE = "convolutions and what follows them have channels last"
WIDE = 16  # channels of a convolution whose tensor cores are not left half empty by channels last


def convolutions(graph: Graph) -> list[Node]:
    """The convolutions that can have channels last."""
    known = specs(graph)
    return [node for node in graph.nodes if is_convolution(node, known)]


def layout_passes(nodes: Iterable[Node], known: Mapping[str, Spec]) -> int:
    """Bytes that cuDNN moves to change the layout before and behind those of the calls that have channels first.

    PyTorch's own kernels compute a convolution by channel in the layout that it has.
    """
    found = [node for node in nodes if is_convolution(node, known) and not is_by_channel(node, known)]
    return sum(2 * spec.bytes for node in found for spec in (known[node.args[0].node], node.spec))


@dataclass(frozen=True)
class Turned:
    """A graph with channels last; `origin` says of each call that a norm became which norm it was."""

    graph: Graph
    origin: dict[str, str]


def channels_last(graph: Graph, bias: bool, fewest: int = 1, spared: Container[str] = ()) -> Turned:
    """The graph in which convolutions of so many channels at least, and what follows them, have channels last.

    `bias` takes the bias of a convolution out of the call. What returns, or what a call reads that has no form with
    channels last, is made with channels first by who makes it. A module that changes such a tensor in place stays as
    it is: a copy with channels last would not change along.
    """
    if any(is_in_place(node) and node.outputs and len(node.spec.shape) in RANKS for node in graph.nodes):
        return Turned(graph, {})
    turner = Turner(graph, rule_of, bias, fewest, spared, specs(graph))
    for node in graph.nodes:
        turner.add(node)
    return Turned(turner.done() if turner.last else graph, turner.origin)
