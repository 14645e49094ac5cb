"""A row program: what one row of a kernel's iteration space computes, as terms without repetition.

The space has `rows` x `columns` points. A term may vary by row, by column, by both or by neither; a fold reduces a row
to one number. The number of folds that a term waits for is its phase: terms of phase k can be computed after the k-th
pass over the row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.templates.graph import Graph, Leaf, Spec
from kernel_agent.proposers.templates.lowering import DTYPES, lower
from kernel_agent.proposers.templates.strides import Pattern, Slab, broadcast, compose_from, normal, split
from kernel_agent.proposers.templates.transposed import Transposed, transposed
from kernel_agent.proposers.templates.values import Apply, Fold, FoldKind, Load, Number, Value, View

STRUCTURES = ("tensor", "tuple", "list")
FEWER_COLUMNS = 4  # of a row whose elements lie at one stride
FEWEST_COLUMNS = 16  # a pointwise row shorter than this costs more than finding broadcast elements by division


@dataclass(frozen=True, slots=True)
class Read:
    """An element of a leaf; `pattern` maps the point's flat index to the element's."""

    leaf: Leaf
    offset: int
    pattern: Pattern


@dataclass(frozen=True, slots=True)
class Constant:
    value: str  # as repr, so that nan equals nan and 0.0 differs from -0.0


@dataclass(frozen=True, slots=True)
class Call:
    function: str
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Folded:
    kind: FoldKind
    arg: int


Term = Read | Constant | Call | Folded
Where = tuple[Pattern, int]


@dataclass(frozen=True, slots=True)
class Output:
    """A returned tensor: the term it holds, and whether it has one element a point or one a row.

    `slab` says how it lies in a larger tensor. The kernel is given where it begins, of which its alignment is left.
    """

    term: int
    spec: Spec
    full: bool
    slab: Slab | None = None


@dataclass(frozen=True)
class Program:
    """Terms in order of computation (arguments before users), over rows x columns points."""

    rows: int
    columns: int
    terms: tuple[Term, ...]
    outputs: tuple[Output, ...]
    graph: Graph
    order: Pattern

    spares = 0  # what a kernel of ours saves beside traffic, in bytes of a copy

    @property
    def strided(self) -> bool:
        """Whether a row's elements lie apart from each other in memory, so that neighbouring rows are read together."""
        beside = self.full or not self._lies_along
        return (
            bool(self.folds)
            and beside
            and self.order != normal([(self.rows * self.columns, 1)])
            and _lies_apart(self.order, self.columns)
        )

    @cached_property
    def transposed(self) -> Transposed | None:
        """How pointwise work that reads across its output's order is cut into tiles."""
        if self.folds:
            return None
        patterns = {i: term.pattern for i, term in enumerate(self.terms) if isinstance(term, Read)}
        return transposed(patterns, self.rows * self.columns)

    @property
    def full(self) -> bool:
        """Whether some output has one element a point."""
        return any(output.full for output in self.outputs)

    @property
    def _lies_along(self) -> bool:
        """Whether the elements of a row follow each other in all that is read by column."""
        along = ((self.columns, 1),)
        return all(columns in (along, ((self.columns, 0),), ()) for _, columns in self.places.values())

    @property
    def stores(self) -> tuple[Pattern, Pattern]:
        """Where a full output's row begins, and how its elements follow."""
        halves = split(self.order, self.columns)
        assert halves is not None
        return halves

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """The tensors that are read, in the order of the graph's leaves."""
        read = {term.leaf.node for term in self.terms if isinstance(term, Read)}
        return tuple(leaf for name, leaf in self.graph.leaves.items() if name in read)

    @cached_property
    def places(self) -> dict[int, tuple[Pattern, Pattern]]:
        """For each Read, where the row's elements begin and how they follow."""
        found = {}
        for i, term in enumerate(self.terms):
            if isinstance(term, Read):
                halves = split(term.pattern, self.columns)
                if halves is None:
                    raise NotCovered(f"no template covers how {term.leaf.node} is broadcast here.")
                found[i] = halves
        return found

    @cached_property
    def by_row(self) -> tuple[bool, ...]:
        """Which terms vary by row."""
        varies: list[bool] = []
        for i, term in enumerate(self.terms):
            if isinstance(term, Read):
                varies.append(any(stride for _, stride in self.places[i][0]))
            else:
                varies.append(
                    isinstance(term, Folded) or (isinstance(term, Call) and any(varies[a] for a in term.args))
                )
        return tuple(varies)

    @cached_property
    def by_column(self) -> tuple[bool, ...]:
        """Which terms vary by column."""
        varies: list[bool] = []
        for i, term in enumerate(self.terms):
            if isinstance(term, Read):
                varies.append(any(stride for _, stride in self.places[i][1]))
            else:
                varies.append(isinstance(term, Call) and any(varies[a] for a in term.args))
        return tuple(varies)

    @cached_property
    def phase(self) -> tuple[int, ...]:
        """How many passes over the row a term waits for."""
        phases: list[int] = []
        for term in self.terms:
            if isinstance(term, Folded):
                phases.append(phases[term.arg] + 1)
            else:
                phases.append(max((phases[a] for a in term.args), default=0) if isinstance(term, Call) else 0)
        return tuple(phases)

    @property
    def folds(self) -> tuple[int, ...]:
        return tuple(i for i, term in enumerate(self.terms) if isinstance(term, Folded))

    @property
    def variety(self) -> str:
        """What kernels are called that are varied together."""
        return "columns" if self.strided else "transpose" if self.transposed else self.family

    @property
    def chains(self) -> tuple[int, int]:
        """How many results are worked on apart from each other, and of how many elements each is folded."""
        return (self.rows, self.columns) if self.folds else (self.rows * self.columns, 1)

    @property
    def likeness(self) -> object:
        """Equal for programs that one kernel serves: all but what the tensors are called."""
        return self.rows, self.columns, self.order, nameless(self.terms, self.leaves), self.outputs

    @property
    def family(self) -> str:
        """`pointwise`, `reduction`, `softmax` or `norm`: the folder of the corpus it is written from."""
        kinds = {term.kind for term in self.terms if isinstance(term, Folded)}
        if not kinds:
            return "pointwise"
        if not self.full:
            return "reduction"
        return "softmax" if "max" in kinds else "norm"


def nameless(terms: Iterable[Term], leaves: Sequence[Leaf]) -> tuple[Term, ...]:
    """The terms, with the tensors that they read called by their places."""
    called = {leaf.node: replace(leaf, node=f"in{n}", path=None) for n, leaf in enumerate(leaves)}
    return tuple(
        replace(term, leaf=called.get(term.leaf.node, term.leaf)) if isinstance(term, Read) else term for term in terms
    )


def build(graph: Graph) -> Program:
    """The row program of a whole module. Raises NotCovered, with a sentence that names what stands in the way."""
    if graph.structure not in STRUCTURES:
        raise NotCovered(
            f"templates return a tensor, or a tuple or list of nothing else, and this module's output is "
            f"{graph.structure}."
        )
    values = lower(graph)
    specs = {node.name: node.spec for node in graph.nodes if node.name in graph.outputs}
    for name, spec in specs.items():
        if spec.dtype not in DTYPES:
            raise NotCovered(f"templates give {', '.join(DTYPES)}, and {name} is {spec.dtype}.")
    folds = _folds(values)
    points, columns, order = _space(folds, values)
    if not points * columns:
        raise NotCovered("the module's tensors are empty for these inputs: there is nothing to make faster.")
    if split(order, columns) is None:
        raise NotCovered("no template covers how the folded dimensions lie in memory here.")
    natural = order == normal([(points, 1)]) or _lies_apart(order, columns)
    if not natural and any(prod(value.shape) == points for value in values):
        raise NotCovered("no template covers how the folded dimensions lie in memory here.")
    placing = Placing(points, columns)
    outputs = []
    for name, value in zip(graph.outputs, values, strict=True):
        size = prod(value.shape)
        if size not in ((points, points // columns) if folds else (points,)):
            raise NotCovered(f"templates need outputs of one size, and {name} has {size} elements beside {points}.")
        full = size == points
        pattern = order if full else normal([(points // columns, 1), (columns, 0)])
        outputs.append(Output(placing.place(value, (pattern, 0)), specs[name], full))
    terms = tuple(placing.terms)
    if not any(isinstance(term, Folded) for term in terms):
        columns = _pointwise_columns(terms, points)
    program = Program(points // columns, columns, terms, tuple(outputs), graph, order)
    assert len(program.places) <= len(terms)  # refuses here what cannot be placed
    return program


def _lies_apart(order: Pattern, columns: int) -> bool:
    """Whether neighbouring rows are neighbours in memory."""
    halves = split(order, columns)
    return halves is not None and halves[0][-1:] != () and halves[0][-1][1] == 1


def _folds(values: tuple[Value, ...]) -> list[Fold]:
    """The folds that the values rest on."""
    seen, stack, folds = set[int](), list(values), list[Fold]()
    while stack:
        value = stack.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Fold):
            folds.append(value)
            stack.append(value.base)
        elif isinstance(value, View):
            stack.append(value.base)
        elif isinstance(value, Apply):
            stack.extend(value.args)
    return folds


def _space(folds: list[Fold], values: tuple[Value, ...]) -> tuple[int, int, Pattern]:
    """Points in all, columns, and the order of points, from the folds; without any, the largest output is one row."""
    spaces = {(prod(f.base.shape), f.count, f.order): f.op for f in folds}
    if len(spaces) > 1:
        (first, op), (second, other) = list(spaces.items())[:2]
        raise NotCovered(
            f"templates fold rows of one length, and {op} folds {first[1]} of {first[0]} elements "
            f"while {other} folds {second[1]} of {second[0]}."
        )
    if spaces:
        return next(iter(spaces))
    points = max(prod(value.shape) for value in values)
    return points, points, normal([(points, 1)])


def _pointwise_columns(terms: tuple[Term, ...], points: int) -> int:
    """The longest row in which every leaf is either contiguous or constant."""
    for columns, halves in _rows(terms, points):
        if all(found in ((), ((columns, 0),), ((columns, 1),)) for found in halves):
            return columns if columns >= FEWEST_COLUMNS else points
    return points


def strided_rows(program: Program) -> Program:
    """A pointwise program in the longest rows in which every leaf has one stride; else in those in which it has two."""
    if program.folds:
        return program
    points = program.rows * program.columns
    for digits, least in ((1, FEWEST_COLUMNS), (1, FEWER_COLUMNS), (2, FEWEST_COLUMNS)):
        for columns, halves in _rows(program.terms, points):
            if columns >= least and all(len(found) <= digits for found in halves):
                return replace(program, rows=points // columns, columns=columns)
    return program


def _rows(terms: tuple[Term, ...], points: int) -> Iterator[tuple[int, list[Pattern]]]:
    """The rows in which all that is read goes by row and column, the longest first, and how its elements follow."""
    patterns = {term.pattern for term in terms if isinstance(term, Read)}
    sizes = {points} | {prod(n for n, _ in p[i:]) for p in patterns for i in range(len(p))}
    for columns in sorted(sizes, reverse=True):
        halves = [found for pattern in patterns if (found := split(pattern, columns)) is not None]
        if len(halves) == len(patterns):
            yield columns, [columns_ for _, columns_ in halves]


class Placing:
    """Walks values from the outputs to the leaves, carrying the map from points to elements."""

    def __init__(self, points: int, columns: int) -> None:
        self.terms: list[Term] = []
        self._ids: dict[Term, int] = {}
        self._placed: dict[tuple[int, Where], int] = {}
        self._whole = normal([(points, 1)])
        self._rows = normal([(points // columns, 1), (columns, 0)])

    def place(self, value: Value, where: Where) -> int:
        """The id of the term that holds `value` at each point."""
        stack = [(value, where)]
        while stack:
            top = stack[-1]
            missing = [need for need in self._needs(*top) if (id(need[0]), need[1]) not in self._placed]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            self._placed[id(top[0]), top[1]] = self._term(*top)
        return self._placed[id(value), where]

    def _needs(self, value: Value, where: Where) -> list[tuple[Value, Where]]:
        if isinstance(value, Apply):
            return [(arg, _composed(where, broadcast(arg.shape, value.shape), value)) for arg in value.args]
        if isinstance(value, View):
            pattern, offset = _composed(where, value.pattern, value)
            return [(value.base, (pattern, offset + value.offset))]
        if isinstance(value, Fold):
            if where != (self._rows, 0):
                raise NotCovered(f"no template covers how the result of {value.op} is broadcast here.")
            return [(value.base, (self._whole, 0))]
        return []

    def _term(self, value: Value, where: Where) -> int:
        needs = [self._placed[id(v), w] for v, w in self._needs(value, where)]
        if isinstance(value, View):
            return needs[0]
        if isinstance(value, Load):
            if value.leaf.made:
                raise NotCovered("no template covers a tensor that forward makes of Python numbers.")
            return self._intern(Read(value.leaf, value.offset + where[1], where[0]))
        if isinstance(value, Number):
            return self._intern(Constant(repr(value.value)))
        if isinstance(value, Fold):
            return self._intern(Folded(value.kind, needs[0]))
        assert isinstance(value, Apply)
        return self._intern(Call(value.function, tuple(needs)))

    def _intern(self, term: Term) -> int:
        if term not in self._ids:
            self._ids[term] = len(self.terms)
            self.terms.append(term)
        return self._ids[term]


def _composed(outer: Where, inner: Pattern, value: Value) -> Where:
    found = compose_from(*outer, inner)
    if found is None:
        raise NotCovered(f"no template covers how a value of shape {list(value.shape)} is rearranged here.")
    return found
