"""What follows sums element by element in the kernel that makes them: a program over them, and its lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.templates.express import expression
from kernel_agent.proposers.templates.graph import Graph, Leaf, Node
from kernel_agent.proposers.templates.program import Constant, Output, Program, Read, build
from kernel_agent.proposers.templates.strides import normal


def tail_over(graph: Graph, sums: Leaf, nodes: Sequence[Node]) -> Program:
    """The program of a graph's outputs over a leaf that holds the sums; `nodes` are the calls behind them.

    Raises NotCovered where the outputs aren't pointwise functions of the sums in their order.
    """
    over = replace(graph, leaves={**graph.leaves, sums.node: sums}, nodes=tuple(nodes))
    points = sums.elements
    whole = normal([(points, 1)])
    if graph.outputs == (sums.node,):
        return Program(1, points, (Read(sums, 0, whole),), (Output(0, sums.spec, True),), over, whole)
    tail = build(over)
    own = [term for term in tail.terms if isinstance(term, Read) and term.leaf.node == sums.node]
    if tail.folds or tail.rows * tail.columns != points:
        raise NotCovered("what follows a product is pointwise in one kernel with it, and of its size.")
    if not own or any(term.offset or term.pattern != whole for term in own):
        raise NotCovered("no template covers a product that is rearranged by what follows it.")
    return tail


def tail_lines(tail: Program, sums: str, given: str, element: Callable[[Read], str]) -> list[str]:
    """The declarations of a tail's terms for one of the sums, which is the expression `given`; `element` spells what
    else is read, as an element of a tensor."""
    lines = list[str]()
    for i, term in enumerate(tail.terms):
        if isinstance(term, Constant):
            continue
        if not isinstance(term, Read):
            lines.append(f"const float v{i} = {expression(tail, i)};")
        elif term.leaf.node == sums:
            lines.append(f"const float v{i} = {given};")
        else:
            value = element(term)
            lines.append(f"const float v{i} = {value if term.leaf.spec.dtype == 'float32' else f'k_load({value})'};")
    return lines
