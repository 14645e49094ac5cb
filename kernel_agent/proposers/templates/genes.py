"""What can be varied in a kernel, in which order it is tried, and how to say it.

A kernel's genes are a JSON object of one value a gene. Those with a macro are tunables: numbers that the candidate
declares and compiles with, so that trying another one needs no new text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

Genes = dict[str, int | str]


@dataclass(frozen=True, slots=True)
class GeneChoice:
    """One value of a gene: the phrase that names it in a title, and why one would take it."""

    value: int | str
    phrase: str
    why: str


@dataclass(frozen=True, slots=True)
class Gene:
    """One thing that can be varied; the most promising choice comes first. `macro` names it where it is a tunable."""

    name: str
    choices: tuple[GeneChoice, ...]
    macro: str | None = None

    @property
    def values(self) -> tuple[int | str, ...]:
        return tuple(choice.value for choice in self.choices)

    def choice(self, value: int | str) -> GeneChoice:
        return next(choice for choice in self.choices if choice.value == value)


@dataclass(frozen=True, slots=True)
class Space:
    """The genes of a program on a device, and the starting points that differ most, by promise."""

    genes: tuple[Gene, ...]
    starts: tuple[Genes, ...]

    def title(self, genes: Mapping[str, int | str]) -> str:
        """One line that tells these genes from all others."""
        phrases = [gene.choice(genes[gene.name]).phrase for gene in self.genes]
        text = ", ".join(phrase for phrase in phrases if phrase)
        return text[:1].upper() + text[1:]

    def every(self) -> Iterator[Genes]:
        """All combinations, the most promising values first."""
        for values in product(*(gene.values for gene in self.genes)):
            yield dict(zip((gene.name for gene in self.genes), values, strict=True))

    def variants(self, genes: Mapping[str, int | str]) -> list[Genes]:
        """The same kernel with other numbers for its tunables: itself first, then by how many numbers differ.

        Each number is followed by its successors in the gene's order, so that neighbours' variants are not the same.
        """
        tunables = [gene for gene in self.genes if gene.macro]
        at = [g.values.index(genes[g.name]) for g in tunables]
        pools = [g.values[i:] + g.values[:i] for g, i in zip(tunables, at, strict=True)]
        every = product(*(range(len(pool)) for pool in pools))
        ranked = sorted(every, key=lambda at: (sum(i > 0 for i in at), sum(at), at))
        return [{**genes, **{g.name: pool[i] for g, pool, i in zip(tunables, pools, at, strict=True)}} for at in ranked]

    def fits(self, genes: Mapping[str, object]) -> bool:
        """Whether these are genes of this space."""
        return {g.name for g in self.genes} == set(genes) and all(genes[g.name] in g.values for g in self.genes)


def strategy(name: str, choices: Sequence[tuple[int | str, str, str]], macro: str | None = None) -> Gene:
    """A gene whose values are ways to do something."""
    return Gene(name, tuple(GeneChoice(*choice) for choice in choices), macro)


def numbers(name: str, values: Sequence[int], phrase: str, why: str, macro: str | None, one: str | None = None) -> Gene:
    """A number, with a macro a tunable; `phrase` says {0} where it stands, and `one` is said of the number one."""
    phrases = {v: one if v == 1 and one is not None else phrase.format(v) for v in values}
    return Gene(name, tuple(GeneChoice(v, phrases[v], why.format(v)) for v in values), macro)


def starting(genes: Sequence[Gene], departures: Sequence[Mapping[str, int | str]]) -> Space:
    """A space whose starting points are the first choices, then these with each departure that exists in it."""
    first: Genes = {gene.name: gene.values[0] for gene in genes}
    starts = [first]
    for departure in departures:
        known = {g.name: departure[g.name] for g in genes if g.name in departure and departure[g.name] in g.values}
        start = {**first, **known}
        if start not in starts:
            starts.append(start)
    return Space(tuple(genes), tuple(starts))
