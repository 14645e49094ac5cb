"""Attention: softmax(queries keys^T * scale, masked) values, in one kernel that keeps the scores on the chip.

The rules write it as the call `aten.attention.default`, whose arguments are an equation, the tensors, how the mask
works, the scale, what hidden scores are, and whether rows of hidden scores alone are zero. In the equation
`bmd,bnd,bne,mn->bme` d are the terms of queries m and keys n, e those of values; all other letters are the batch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite, prod

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.templates.graph import Graph, Leaf, Node, Spec
from kernel_agent.proposers.templates.lowering import names
from kernel_agent.proposers.templates.product import Located, Operand, values_of
from kernel_agent.proposers.templates.program import Output, Term
from kernel_agent.proposers.templates.strides import Pattern, normal

ATTENTION = "attention"
ROLES = "mnde"  # letters of an equation that are no batch
LEAST = 2.0**-64  # scale of masked scores: what is added to them is divided by it
WIDEST = 128  # terms of a query or value: registers hold no more sums
HALVES = ("float16", "bfloat16")  # types that one product of float16 is exact for
FLOATS = ("float32", *HALVES)
MASKS = {"none": (), "causal": (), "add": FLOATS, "hide": ("bool",), "keep": ("bool",)}  # types of their tensor


@dataclass(frozen=True)
class AttentionShape:
    """`heads` of all batches; queries and keys of each, terms of these, and of a value."""

    heads: int
    queries: int
    keys: int
    terms: int
    values: int

    def operations(self, how: str) -> float:
        """Multiplications and additions, without those that a causal mask spares."""
        few = min(self.queries, self.keys)  # queries that do not see all keys
        seen = 1.0 if how != "causal" else few / self.keys / 2 * few / self.queries + 1 - few / self.queries
        return 2.0 * seen * self.scores * (self.terms + self.values)

    @property
    def scores(self) -> int:
        """Pairs of a query and a key."""
        return self.heads * self.queries * self.keys


@dataclass(frozen=True)
class Attention:
    """Operands have queries, keys or values as rows; those of the mask are queries, its terms keys.

    Result (head, query, term) is element batch(head) + query * `row` + term of the output. `saved` is what the calls
    in place of which it stands move beside products' operands, in bytes, and `calls` how many they are. `arithmetics`
    are the ways to compute it that are admissible, the most promising first; `spares` is what the time that they save
    is worth, in bytes of a copy.
    """

    shape: AttentionShape
    q: Operand
    k: Operand
    v: Operand
    mask: Operand | None
    how: str
    scale: float
    fill: float
    empty_is_zero: bool
    batch: Pattern
    row: int
    result: Spec
    graph: Graph
    saved: int = 0
    calls: int = 1
    arithmetics: tuple[str, ...] = ()
    spares: int = 0

    variety = "attention"

    @property
    def terms(self) -> tuple[Term, ...]:
        """None: nothing follows it element by element."""
        return ()

    @cached_property
    def operands(self) -> tuple[Operand, ...]:
        """What is read: queries, keys, values, and maybe a mask."""
        return self.q, self.k, self.v, *([self.mask] if self.mask else [])

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """The tensors that are read, in the order of the graph's leaves."""
        read = {one.leaf.node for one in self.operands}
        return tuple(leaf for name, leaf in self.graph.leaves.items() if name in read)

    @property
    def outputs(self) -> tuple[Output, ...]:
        return (Output(0, self.result, True),)

    @property
    def chains(self) -> tuple[int, int]:
        """How many results are worked on apart from each other, and of how many terms each is made."""
        of = self.shape
        return of.heads * of.queries, of.keys

    @property
    def likeness(self) -> object:
        """Equal for attentions that one kernel serves: all but what the tensors are called."""
        order = [leaf.node for leaf in self.leaves]
        nobody = Leaf("", Spec((), ""), None)
        reads = [(order.index(one.leaf.node), one.leaf.spec, replace(one, leaf=nobody)) for one in self.operands]
        how = self.how, self.scale, self.fill, self.empty_is_zero
        return self.shape, tuple(reads), how, self.batch, self.row, self.result

    @property
    def shares_mask(self) -> bool:
        """Whether all heads read one mask."""
        return self.mask is not None and not any(step for _, step in self.mask.batch)


def is_attention(node: Node) -> bool:
    """Whether a call is an attention as the rules write it."""
    return names(node.op)[0] == ATTENTION


def sides(equation: str) -> list[str]:
    """The letters of each tensor of an equation, those of the result last."""
    return re.split(",|->", equation)


def attention_of(graph: Graph) -> Attention:
    """The graph as one attention. Raises NotCovered where it is more, or lies as no kernel reads it."""
    node = next(node for node in graph.nodes if is_attention(node))
    equation, tensors, how, scale, fill, empty_is_zero = node.args
    if graph.outputs != (node.name,):
        raise NotCovered("no template covers what follows an attention in one kernel with it.")
    *letters, out = sides(equation)
    known = values_of(graph, tuple(ref.node for ref in tensors))
    kinds = [*[(node.spec.dtype,)] * 3, *[MASKS[how]] * (len(tensors) - 3)]
    located = [Located.at(known[ref.node], *of) for ref, *of in zip(tensors, letters, kinds, strict=True)]
    sizes = dict.fromkeys("".join(letters), 1)
    for one in located:
        sizes |= {letter: size for letter, size in one.sizes.items() if size != 1}
    batch = [letter for letter in out if letter not in ROLES]
    pairs = zip(located, (("m", "d"), ("n", "d"), ("n", "e"), ("m", "n")), strict=False)
    q, k, v, *more = [one.operand(batch, rows, terms, sizes) for one, (rows, terms) in pairs]
    strides = {letter: prod(sizes[other] for other in out[i + 1 :]) for i, letter in enumerate(out)}
    found = Attention(
        AttentionShape(prod(sizes[letter] for letter in batch), *(sizes[letter] for letter in ROLES)),
        q=q,
        k=k,
        v=v,
        mask=more[0] if more else None,
        how=how,
        scale=scale,
        fill=fill,
        empty_is_zero=empty_is_zero,
        batch=normal((sizes[letter], strides[letter]) for letter in batch),
        row=strides["m"],
        result=node.spec,
        graph=graph,
        saved=int(node.kwargs.get("saved", 0)),
        calls=int(node.kwargs.get("calls", 1)),
    )
    _check(found, out)
    return found


def _check(of: Attention, out: Sequence[str]) -> None:
    """Raises NotCovered where the kernel has no way to do it."""
    if of.result.dtype not in FLOATS:
        raise NotCovered(f"no template covers attention of {of.result.dtype}.")
    if max(of.shape.terms, of.shape.values) > WIDEST:
        raise NotCovered(f"the sums of values wider than {WIDEST} terms do not fit into registers.")
    if out[-1] != "e" or "e" in out[:-1]:
        raise NotCovered("no template covers an attention whose result does not lie along its values' terms.")
    if not (isfinite(of.scale) and of.scale > 0):
        raise NotCovered("no template covers an attention whose scale is not positive.")
    if of.mask and of.scale < LEAST:
        raise NotCovered("a mask over a scale as small as this is no float32.")
    if of.fill != of.fill or of.fill == float("inf"):
        raise NotCovered("no template covers an attention whose hidden scores are the largest.")
