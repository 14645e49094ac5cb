"""The proposer that needs no key: kernels of the corpus, written for the traced graph and evolved over their genes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, islice, product
from math import log, sqrt
from statistics import fmean

from kernel_agent.errors import NotCovered, Unusable
from kernel_agent.proposers.regions.works import kept, work_of
from kernel_agent.proposers.templates.arithmetic import offered
from kernel_agent.proposers.templates.genes import Genes, Space
from kernel_agent.proposers.templates.targets import TARGETS
from kernel_agent.run.brief import Brief, Outcome
from kernel_agent.run.regions import Regions
from kernel_agent.run.types import Description, Evaluation, Idea, Trial, digest
from kernel_agent.text import line

CURIOSITY = 0.02  # what an untried first choice promises, as a logarithm of speed: 2 %; later choices promise less
FAILED = log(0.5)  # what a failure counts for, as a logarithm of speed
ATTEMPTS = 2  # of one idea that are taken as tried: what two implementations of each idea come to


def cut(description: Description) -> tuple[Templates | None, Regions]:
    """The templates of a problem, None where they have no kernel for it, and how they cut it."""
    try:
        found = Templates(description)
    except NotCovered as fault:
        return None, Regions(0, kept(fault.kept), str(fault))
    return found, found.regions


class Templates:
    """Writes kernels for one problem, whose `regions` say what of it they cover.

    Construction raises NotCovered where no kernel would gain anything.
    """

    def __init__(self, description: Description) -> None:
        self._device = description.device
        if description.device.target not in TARGETS:
            known = " and ".join(TARGETS)
            raise NotCovered(f"templates are written for {known}, not for {description.device.target}.")
        if description.graph is None:
            raise NotCovered(line(description.graph_error or "The module was not traced."))
        self._work = work_of(description.graph, description.device, offered(description))
        self._space, self.regions = self._work.space, self._work.regions

    async def ideas(self, brief: Brief, count: int) -> list[Idea]:
        """From the reference, the strategies that differ most; from a kernel, the untried changes that promise most."""
        parent, starts = self._parent(brief), self._space.starts
        chosen: Iterable[Genes] = [*starts, *_changed(self._space, starts[0])]
        if parent is not None:
            chosen = [*self._joined(brief, parent), *self._evolved(brief, parent)]
        return [self._idea(brief, genes, parent) for genes in islice(self._apart(chosen), count)]

    async def write(self, brief: Brief, idea: Idea, attempt: int) -> str:
        """The idea's kernel; each attempt takes other numbers for its tunables.

        Raises Unusable for a model's idea, and where a call beside the kernels can't be written.
        """
        if idea.change is None:
            raise Unusable("a model had this idea and templates write only their own")
        variants = self._space.variants(self._genes(idea))
        try:
            return self._work.write(brief.problem.source, variants[attempt % len(variants)])
        except NotCovered as fault:
            raise Unusable(str(fault)) from None

    async def repair(self, brief: Brief, idea: Idea, trial: Trial, evaluation: Evaluation) -> str | None:
        """Nothing: what else a failed kernel could be is another idea's genes."""
        return None

    async def escalate(self, brief: Brief, idea: Idea, trial: Trial, evaluation: Evaluation) -> str | None:
        """Nothing, for the same reason."""
        return None

    def _joined(self, brief: Brief, parent: Genes) -> Iterator[Genes]:
        """The untried crosses with a second parent, where there is one."""
        if (other := brief.second_parent) and other.idea.change and self._space.fits(other.idea.change):
            tried = {outcome.title for outcome in (*brief.siblings, *brief.ancestors)}
            crossed = _crossed(parent, [dict(other.idea.change)])
            yield from (genes for genes in crossed if self._space.title(genes) not in tried)

    def _apart(self, options: Iterable[Genes]) -> Iterator[Genes]:
        """The options in order, without those that an earlier one's attempts come to."""
        used = set[str]()
        for genes in options:
            attempts = self._attempts(genes)
            if not attempts & used:
                used |= attempts
                yield genes

    def _attempts(self, genes: Genes) -> set[str]:
        """The titles of the kernels that the implementations of an idea come to."""
        return {self._space.title(variant) for variant in self._space.variants(genes)[:ATTEMPTS]}

    def _genes(self, idea: Idea) -> Genes:
        """The idea's genes, or the first starting point's where another proposer had the idea."""
        return dict(idea.change) if idea.change and self._space.fits(idea.change) else self._space.starts[0]

    def _parent(self, brief: Brief) -> Genes | None:
        if brief.parent_idea is None:
            return None
        variants = self._space.variants(self._genes(brief.parent_idea))
        genes = variants[brief.parent.attempt % len(variants)]
        for gene, (name, value) in product(self._space.genes, brief.parent.tuned):
            if gene.macro == name.rstrip("_") and value in gene.values:  # a name that the problem uses is lengthened
                genes[gene.name] = gene.values[gene.values.index(value)]
        return genes

    def _evolved(self, brief: Brief, parent: Genes) -> Iterator[Genes]:
        """Untried changes of one or two genes and crosses with siblings, by what each value has been worth so far."""
        space = self._space
        by_title = {space.title(genes): genes for genes in space.every()}
        outcomes = [o for o in (*brief.siblings, *brief.ancestors) if o.title in by_title]
        judged = [(by_title[o.title], o) for o in outcomes if o.ended]
        waiting = Counter(item for o in outcomes if not o.ended for item in by_title[o.title].items())
        tried = self._attempts(self._genes(brief.parent_idea)) if brief.parent_idea else set[str]()
        tried = tried.union(*(self._attempts(by_title[outcome.title]) for outcome in outcomes))
        others = [genes for genes, outcome in judged if outcome.speedup]
        options = {space.title(genes): genes for genes in [*_changed(space, parent), *_crossed(parent, others)]}
        fresh = [genes for title, genes in options.items() if title not in tried]
        worth = _worth(judged)
        rng = random.Random(digest(brief.problem.id, brief.round, brief.parent.id))
        luck = {space.title(g): rng.uniform(0, CURIOSITY) - CURIOSITY * len(self._attempts(g) & tried) for g in fresh}
        ranks = {(gene.name, value): i for gene in space.genes for i, value in enumerate(gene.values)}

        def value(item: tuple[str, int | str]) -> float:
            return worth[item] if item in worth else CURIOSITY * (1 - ranks[item] - waiting[item])

        def promise(genes: Genes) -> float:
            changes = [item for item in genes.items() if item[1] != parent[item[0]]]
            gains = [value(item) - value((item[0], parent[item[0]])) for item in changes]
            return sum(gains) / sqrt(len(gains)) + luck[space.title(genes)]

        while fresh:
            best = max(fresh, key=promise)
            waiting.update(best.items())
            fresh.remove(best)
            yield best

    def _idea(self, brief: Brief, genes: Genes, parent: Genes | None) -> Idea:
        title = self._space.title(genes)
        whys = [
            g.choice(genes[g.name]).why for g in self._space.genes if parent is None or genes[g.name] != parent[g.name]
        ]
        return Idea(
            id=digest(brief.problem.id, brief.round, brief.parent.id, title),
            round=brief.round,
            parent=brief.parent.id,
            title=title,
            reasoning=f"{self._outlook()} {' '.join(whys)}",
            change=genes,
        )

    def _outlook(self) -> str:
        """What the kernel must move, and how fast this device could."""
        device = self._device
        subject, moved = self._work.outlook()
        text = f"{subject} {moved / 1e6:.3g} MB, each byte once"
        if device.copy_gbps:
            at_best = moved / device.copy_gbps / 1e3
            text += f": {at_best:.4g} us at the copy speed of {device.name}, {device.copy_gbps:.4g} GB/s"
        return text + "."


def _changed(space: Space, genes: Genes) -> Iterator[Genes]:
    """All changes of one gene, then all of two."""
    for size in (1, 2):
        for some in combinations(space.genes, size):
            pools = [[v for v in gene.values if v != genes[gene.name]] for gene in some]
            for values in product(*pools):
                yield {**genes, **dict(zip((gene.name for gene in some), values, strict=True))}


def _crossed(parent: Genes, others: Sequence[Genes]) -> Iterator[Genes]:
    """The parent with about half of what another kernel does otherwise."""
    for other in others:
        differing = [name for name in parent if other[name] != parent[name]]
        for some in combinations(differing, (len(differing) + 1) // 2):
            yield {**parent, **{name: other[name] for name in some}}


def _worth(seen: Sequence[tuple[Genes, Outcome]]) -> dict[tuple[str, int | str], float]:
    """How much faster than the mean the kernels with each value were, as a logarithm; drawn to zero where few."""
    judged = [(genes, outcome) for genes, outcome in seen if outcome.ended]
    speeds = [log(outcome.speedup) if outcome.speedup else FAILED for _, outcome in judged]
    mean = fmean(speeds) if speeds else 0.0
    gains: dict[tuple[str, int | str], list[float]] = {}
    for (genes, _), speed in zip(judged, speeds, strict=True):
        for item in genes.items():
            gains.setdefault(item, []).append(speed - mean)
    return {item: sum(values) / (len(values) + 1) for item, values in gains.items()}
