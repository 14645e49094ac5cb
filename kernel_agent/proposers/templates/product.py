"""A matrix product and what follows it element by element: one kernel computes both.

Dimensions have labels as in an einsum: those of both operands and the result are the batch, those of one operand and
the result its rows or columns, those of both operands alone the depth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.templates.forms import Form, form_of, is_product
from kernel_agent.proposers.templates.graph import Graph, Leaf, Node, Ref, Spec
from kernel_agent.proposers.templates.lowering import lowered, mentions, names
from kernel_agent.proposers.templates.program import Output, Program, Read, Term, nameless
from kernel_agent.proposers.templates.strides import Pattern, compose_from, normal, split
from kernel_agent.proposers.templates.tails import tail_over
from kernel_agent.proposers.templates.values import Load, Value, View

TRIANGLES = ("triu", "tril")


@dataclass(frozen=True, slots=True)
class Operand:
    """A float32 tensor that is multiplied. Element (batch, row, term) is element offset + batch(batch) + row * `row`
    + term * `term` of the leaf; of the second operand the rows are the product's columns."""

    leaf: Leaf
    offset: int
    batch: Pattern
    row: int
    term: int


@dataclass(frozen=True)
class Product:
    """batch x rows x columns sums of `depth` products each, and a tail: pointwise terms over them, row-major.

    The tail reads the sums as a leaf called `value`. Sums with column - row outside of `band` are zero.
    `arithmetics` are the ways to compute them that are admissible, the most promising first; `spares` is what the
    time that they save is worth, in bytes of a copy.
    """

    batch: int
    rows: int
    columns: int
    depth: int
    a: Operand
    b: Operand
    band: tuple[int, int] | None
    tail: Program
    value: str
    graph: Graph
    arithmetics: tuple[str, ...] = ()
    spares: int = 0

    variety = "product"

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """The tensors that are read, in the order of the graph's leaves."""
        read = {self.a.leaf.node, self.b.leaf.node, *(leaf.node for leaf in self.tail.leaves)}
        return tuple(leaf for name, leaf in self.graph.leaves.items() if name in read)

    @property
    def outputs(self) -> tuple[Output, ...]:
        return self.tail.outputs

    @property
    def terms(self) -> tuple[Term, ...]:
        return self.tail.terms

    @property
    def chains(self) -> tuple[int, int]:
        """How many results are worked on apart from each other, and of how many terms each is made."""
        return self.batch * self.rows * self.columns, self.depth

    @property
    def operations(self) -> float:
        """Multiplications and additions of the whole product."""
        return 2.0 * self.batch * self.rows * self.columns * self.depth

    @property
    def likeness(self) -> object:
        """Equal for products that one kernel serves: all but what the tensors are called."""
        order = [leaf.node for leaf in self.leaves]
        operands = [(order.index(one.leaf.node), replace(one, leaf=_NOBODY)) for one in (self.a, self.b)]
        shape = self.batch, self.rows, self.columns, self.depth, self.band
        return shape, *operands, nameless(self.terms, [*self.leaves, self._sums]), self.outputs

    @property
    def _sums(self) -> Leaf:
        return self.tail.graph.leaves[self.value]


_NOBODY = Leaf("", Spec((), "float32"), None)


def product_of(graph: Graph) -> Product:
    """The graph as one product with a tail. Raises NotCovered where it is more, or other, than that."""
    found = [node for node in graph.nodes if is_product(node)]
    if len(found) != 1:
        raise NotCovered(f"one kernel computes one product, and here are {len(found)}.")
    node, form = found[0], form_of(found[0], graph)
    operands = (form.a.node, form.b.node)
    known = values_of(graph, operands)
    a, b = (Located.at(known[name], labels) for name, labels in zip(operands, form.labels[:2], strict=True))
    sizes = {**a.sizes, **{label: n for label, n in b.sizes.items() if n != 1 or label not in a.sizes}}
    batch, rows, columns, depth = _grouped(a, b, form.labels, sizes)
    value, band, tail = _tail(graph, node, form)
    count = [prod(sizes[label] for label in some) for some in (batch, rows, columns, depth)]
    product = Product(
        batch=count[0],
        rows=count[1],
        columns=count[2],
        depth=count[3],
        a=a.operand(batch, rows, depth, sizes),
        b=b.operand(batch, columns, depth, sizes),
        band=band,
        tail=tail,
        value=value,
        graph=graph,
    )
    if min(product.rows, product.columns) < 2 or product.depth < 1:
        raise NotCovered("a product with one row or column is a fold, which templates write without a product.")
    _check(product)
    return product


def values_of(graph: Graph, operands: tuple[str, ...]) -> Mapping[str, Any]:
    """What these nodes are as values over the leaves."""
    behind = _behind(graph, operands)
    return lowered(replace(graph, nodes=tuple(n for n in graph.nodes if n.name in behind), outputs=operands))


def _behind(graph: Graph, roots: Sequence[str]) -> set[str]:
    """The calls and leaves that these rest on, themselves among them."""
    by_name, found, stack = {node.name: node for node in graph.nodes}, set[str](), list(roots)
    while stack:
        name = stack.pop()
        if name not in found:
            found.add(name)
            stack += mentions([by_name[name].args, by_name[name].kwargs]) if name in by_name else []
    return found


@dataclass(frozen=True, slots=True)
class Located:
    """An operand in its leaf: where it begins, and the map of each dimension by its label."""

    leaf: Leaf
    offset: int
    digits: Mapping[str, Pattern]
    sizes: Mapping[str, int]

    @staticmethod
    def at(value: Value, labels: Sequence[str], dtypes: Sequence[str] = ("float32",)) -> Located:
        """Where the elements of a value lie. Raises NotCovered where they are computed, or lie as no steps say."""
        pattern, offset, shape = normal([(prod(value.shape), 1)]), 0, value.shape
        if 0 in shape:
            raise NotCovered("no template multiplies tensors without an element.")
        while isinstance(value, View):
            found = compose_from(pattern, offset, value.pattern)
            if found is None:
                raise NotCovered(f"no template covers how an operand of shape {list(shape)} is rearranged here.")
            pattern, offset, value = found[0], found[1] + value.offset, value.base
        if not isinstance(value, Load):
            raise NotCovered("templates multiply tensors as they lie in memory, and here one is computed first.")
        if value.leaf.spec.dtype not in dtypes or value.leaf.made:
            raise NotCovered(f"templates multiply float32, and {value.leaf.node} is {value.leaf.spec.dtype}.")
        digits = dict[str, Pattern]()
        for label, size in reversed(list(zip(labels, shape, strict=True))):
            halves = split(pattern, size)
            if halves is None:
                raise NotCovered(f"no template covers how {value.leaf.node} is rearranged here.")
            pattern, digits[label] = halves
        return Located(value.leaf, offset + value.offset, digits, dict(zip(labels, shape, strict=True)))

    def pattern(self, labels: Sequence[str], sizes: Mapping[str, int]) -> Pattern:
        """The map of some dimensions together; one that it lacks, or has once for all, takes no step."""
        whole = [digit for label in labels for digit in (self.digits.get(label) or ((sizes[label], 0),))]
        return normal(whole)

    def steps(self, labels: Sequence[str], sizes: Mapping[str, int]) -> int | None:
        """The one step between neighbours along some dimensions, or None where there are several."""
        pattern = self.pattern(labels, sizes)
        return None if len(pattern) > 1 else pattern[0][1] if pattern else 1

    def operand(
        self, batch: Sequence[str], rows: Sequence[str], depth: Sequence[str], sizes: Mapping[str, int]
    ) -> Operand:
        row, term = self.steps(rows, sizes), self.steps(depth, sizes)
        if row is None or term is None:
            raise NotCovered(f"no template covers how {self.leaf.node} is rearranged for its product.")
        return Operand(self.leaf, self.offset, self.pattern(batch, sizes), row, term)


def _grouped(
    a: Located, b: Located, labels: tuple[Sequence[str], Sequence[str], Sequence[str]], sizes: Mapping[str, int]
) -> tuple[list[str], list[str], list[str], list[str]]:
    """Batch, rows, columns and depth. Rows that lie apart by several steps are batches but for the last of them.

    Columns are the result's last dimensions that are the second operand's alone, rows those before them that are the
    first's alone; what comes before is the batch, whosever it is.
    """
    first, second, out = map(list, labels)
    depth = [label for label in first if label in second and label not in out]
    batch, columns = _ended(out, set(second) - set(first))
    batch, rows = _ended(batch, set(first) - set(second))
    if {*first, *second} != {*out, *depth} or not rows or not columns or not depth:
        raise NotCovered("no template covers a product whose dimensions lie like these.")
    while len(rows) > 1 and a.steps(rows, sizes) is None:
        batch.append(rows.pop(0))
    return batch, rows, columns, depth


def _ended(labels: list[str], some: set[str]) -> tuple[list[str], list[str]]:
    """The labels up to, and from, where they are all of some."""
    at = next((i + 1 for i in reversed(range(len(labels))) if labels[i] not in some), 0)
    return labels[:at], labels[at:]


def _tail(graph: Graph, node: Node, form: Form) -> tuple[str, tuple[int, int] | None, Program]:
    """The sums' name in the tail, their band, and the tail."""
    readers = [n for n in graph.nodes if node.name in mentions([n.args, n.kwargs])]
    band, name, nodes = None, node.name, [n for n in graph.nodes if n is not node]
    if form.rest:
        name = f"{node.name}_sums"
        nodes = [form.rest(Ref(name)) if n is node else n for n in graph.nodes]
    elif len(readers) == 1 and names(readers[0].op)[0] in TRIANGLES and node.name not in graph.outputs:
        name, band = readers[0].name, _band(readers[0])
        nodes.remove(readers[0])
    return name, band, tail_over(graph, Leaf(name, node.spec, None), nodes)


def _band(node: Node) -> tuple[int, int]:
    """Of column - row: what a triangle keeps, ends included."""
    rows, columns = node.spec.shape[-2:]
    diagonal = node.args[1] if len(node.args) > 1 else node.kwargs.get("diagonal", 0)
    return (diagonal, columns) if names(node.op)[0] == "triu" else (-rows, diagonal)


def _check(product: Product) -> None:
    """Raises NotCovered where the tail reads a tensor that no row and column of the product say where to find."""
    reads = [term for term in product.tail.terms if isinstance(term, Read)]
    if any(split(term.pattern, product.columns) is None for term in reads):
        raise NotCovered("no template covers how a tensor is broadcast behind this product.")
