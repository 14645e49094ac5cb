"""Who the parents of a round are, what of a round is worth a sweep or a profile, and when no further round is."""

from __future__ import annotations

import math
from difflib import unified_diff

from kernel_agent.run import tree
from kernel_agent.run.tree import Run
from kernel_agent.run.types import Profile, Trial
from kernel_agent.targets import target_of

SEEDS = 4
"""Ideas of the seeding round."""


def select(run: Run, round: int, swept: bool = True) -> tuple[Trial, ...]:
    """The parents of a round: the top share of the last round's passed trials and the best so far, and one explorer.

    The explorer is the fastest of the rest that stems from another idea. Before the first success, the reference.
    """
    if round == tree.SEEDING:
        return (run.reference,)
    ranked = tree.ranking(run, before=round, swept=swept)
    pool = [trial for trial in ranked if trial is ranked[0] or tree.round_of(run, trial) == round - 1]
    count = max(1, math.floor(run.settings.selection_percentage * len(pool) + 0.5))
    chosen, rest = pool[:count], pool[count:]
    ideas = {trial.idea for trial in chosen}
    explorer = next((trial for trial in rest if trial.idea not in ideas), rest[0] if rest else None)
    return tuple(chosen) if explorer is None else (*chosen, explorer)


def survivors(run: Run, round: int) -> tuple[Trial, ...]:
    """What a round leaves to the next as parents, the reference left out."""
    return tuple(trial for trial in select(run, round + 1) if trial.idea)


DISAPPOINTING = 2
"""Kernels of a round that are profiled to tell why they are slow."""


LEAST = 1e-9
"""A gain below which none is told from another."""


def disappointing(run: Run, round: int) -> tuple[Trial, ...]:
    """What was to be faster than its parent, came out slower and is no parent itself; the furthest off first."""
    left = survivors(run, round)
    best: dict[str, Trial] = {}
    for trial in tree.ranking(run):
        if trial.idea and tree.round_of(run, trial) == round:
            best.setdefault(trial.idea, trial)

    def missed(trial: Trial) -> float:
        idea = run.ideas[trial.idea or ""]
        gain = (run.speedup(trial) or 0.0) / (run.speedup(run.trials[idea.parent]) or 1.0)
        return (idea.predicted or 0.0) / (gain or LEAST) if gain < 1 < (idea.predicted or 0.0) else 0.0

    slow = [trial for trial in best.values() if trial not in left and missed(trial)]
    return tuple(sorted(slow, key=missed, reverse=True)[:DISAPPOINTING])


def worth_profiling(run: Run, round: int) -> tuple[Trial, ...]:
    """What of a round goes to the profiler before the next one."""
    return (*survivors(run, round), *disappointing(run, round))


def profiled(run: Run, round: int) -> dict[str, Profile]:
    """The profiles that were taken after a round, by source, for later briefs: not a winner's, taken at the end."""
    sources = (trial.source_id for trial in worth_profiling(run, round))
    return {source: run.profiles[source] for source in sources if source in run.profiles}


SWEPT = 2
"""Kernels of a round whose tunables are swept."""


def sweepable(run: Run, round: int) -> tuple[Trial, ...]:
    """The fastest kernels that a round leaves to the next as parents, as they were before any sweep."""
    return tuple(trial for trial in select(run, round + 1, swept=False) if trial.idea)[:SWEPT]


def shares(run: Run, round: int, kept: int = 0) -> tuple[tuple[Trial, int], ...]:
    """A round's parents, each with its share of the round's ideas; the first get what does not divide. `kept` ideas,
    which cross two parents, are left out."""
    total = SEEDS if round == tree.SEEDING else run.settings.branching_factor - kept
    parents = select(run, round)[:total]
    each, over = divmod(total, len(parents))
    return tuple((parent, each + (place < over)) for place, parent in enumerate(parents))


CROSSED_FROM = 3
"""Ideas a round from which on one of them crosses two parents."""

ALIKE = 0.05
"""Share of lines by which two kernels differ at most that have nothing to be crossed."""


def crossing(run: Run, round: int) -> tuple[Trial, Trial] | None:
    """The fastest two parents of a round that stem from different ideas, for one idea that joins what both do well.

    Templates' kernels may differ in a word: those are not crossed.
    """
    parents = [trial for trial in select(run, round) if trial.idea]
    others = (t for t in parents[1:] if t.idea != parents[0].idea and not _alike(t.source, parents[0].source))
    if run.settings.branching_factor < CROSSED_FROM or (other := next(others, None)) is None:
        return None
    return parents[0], other


def _alike(one: str, other: str) -> bool:
    rows = one.splitlines(), other.splitlines()
    changed = sum(row[:1] in "+-" for row in unified_diff(*rows, n=0, lineterm=""))
    return changed <= ALIKE * sum(map(len, rows))


def finished(run: Run, round: int) -> str | None:
    """Why the search ends after this round: the limit is all but reached, or nothing has improved; None to go on."""
    ranked = tree.ranking(run, before=round + 1)
    evaluation = run.evaluation(ranked[0])
    if ranked[0].idea and evaluation and evaluation.timing:
        share = run.description.reached(evaluation.timing.median_us)
        if share and share >= run.settings.stop_share:
            return f"the search ends after round {round}: its best reaches {share:.0%} of the limit"
    flat = run.settings.flat_rounds
    if flat and round >= flat:
        before, now = (run.speedup(tree.ranking(run, before=number + 1)[0]) or 1.0 for number in (round - flat, round))
        if now <= before * (1 + target_of(run.problem.target).noise):
            return f"the search ends after round {round}: nothing was faster for {flat} rounds"
    return None
