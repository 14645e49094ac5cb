"""Functions that rise are taken of the largest element of a window, not of all of its elements."""

from __future__ import annotations

from dataclasses import replace

from kernel_agent.proposers.regions.plan import specs
from kernel_agent.proposers.regions.rule import Writer
from kernel_agent.proposers.regions.views import users
from kernel_agent.proposers.templates.graph import Graph, Node, Ref
from kernel_agent.proposers.templates.lowering import names

RISING = ("tanh", "sigmoid", "exp", "erf", "atan", "relu", "relu6", "hardtanh", "hardsigmoid", "log_sigmoid")
LARGEST = ("max_pool1d", "max_pool2d", "max_pool3d", "amax", "amin")
TITLE = "a function that rises is taken of the largest element, not of all"


def commuted(graph: Graph) -> tuple[Graph, tuple[str, ...]]:
    """The graph with rising functions behind the maxima and minima that alone read them, and the rule where it held.

    max f(x) = f(max x) where f rises: f is computed once a window. NaN stays NaN on both ways.
    """
    readers, made, known = users(graph, graph.leaves), {node.name: node for node in graph.nodes}, specs(graph)
    nodes, gone = list[Node](), set[str]()
    for node in graph.nodes:
        of = made.get(node.args[0].node) if node.args and isinstance(node.args[0], Ref) else None
        alone = of is not None and len(readers[of.name]) == 1 and of.name not in graph.outputs
        if of is None or not alone or not _rises(of) or not _is_largest(node):
            nodes.append(node)
            continue
        w = Writer(node, known)
        largest = w.repeat(node, [of.args[0], *node.args[1:]], node.spec.shape)
        nodes += [*w.calls, replace(of, name=node.name, args=(largest, *of.args[1:]), outputs=node.outputs)]
        gone.add(of.name)
    if not gone:
        return graph, ()
    return replace(graph, nodes=tuple(node for node in nodes if node.name not in gone)), (TITLE,)


def _rises(node: Node) -> bool:
    base, numbers = names(node.op)[0], all(isinstance(a, int | float) for a in node.args[1:])
    return base in RISING and numbers and not node.kwargs and len(node.outputs) == 1


def _is_largest(node: Node) -> bool:
    base = names(node.op)[0]
    return base in LARGEST and len(node.outputs) == 1 and isinstance(node.args[0], Ref)
