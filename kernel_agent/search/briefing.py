"""What may be told of a run to whoever proposes its next kernels: from earlier rounds alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kernel_agent.run.tree import Run, chain, lineage, values
from kernel_agent.run.types import Brief, Evaluation, Idea, Mate, Outcome, Profile, Status, Trial


def _mate(run: Run, trial: Trial) -> Mate:
    evaluation = run.evaluation(trial)
    assert trial.idea is not None and evaluation is not None, "parents have passed"
    return Mate(trial, run.ideas[trial.idea], evaluation)


def outcome(run: Run, idea: Idea, seen: Mapping[str, Profile]) -> Outcome | None:
    """What became of an idea: its fastest trial, or how its last one failed, or that no code came; None before that.

    `seen` are the profiles that may be told, by source.
    """
    judged = [
        (trial, evaluation)
        for attempt in range(run.settings.implementations_per_idea)
        for trial in chain(run, idea, attempt)
        if (evaluation := run.evaluation(trial)) is not None
    ]
    told = Outcome(idea.title, None, None, predicted=idea.predicted, gist=idea.transformation)
    if not judged:
        why = next((one.reason for one in run.unwritten.values() if one.idea == idea.id), None)
        return replace(told, status=Status.REJECTED, remark=f"no code came of it: {why}") if why else None
    passed = [(evaluation.speedup or 0.0, trial) for trial, evaluation in judged if evaluation.status is Status.PASSED]
    if not passed:
        return replace(told, status=judged[-1][1].status, remark=_remark(judged[-1][1]))
    speedup, trial = max(passed, key=lambda one: one[0])
    parent = run.trials[idea.parent]
    gain = speedup / (run.speedup(parent) or 1.0) if parent.idea else None
    others = [f"{values(one)} {found:.2f}x" for found, one in passed if one.tuned and one is not trial]
    return replace(told, status=Status.PASSED, speedup=speedup, gain=gain, remark=_seen(trial, others, seen))


def _seen(trial: Trial, others: Sequence[str], seen: Mapping[str, Profile]) -> str:
    """The values that a sweep chose for a trial, the `others` that it tried, and what a profiler saw limit it."""
    parts = [f"with {values(trial)}"] if trial.tuned else []
    parts += [f"swept to no gain: {', '.join(others)}"] if others else []
    if (profile := seen.get(trial.source_id)) and profile.bound != "unknown":
        parts.append(f"bound by {profile.bound}: {[*profile.findings, profile.why][0]}")
    return "; ".join(parts)


def brief(
    run: Run, parent: Trial, round: int, mate: str | None = None, seen: Mapping[str, Profile] | None = None
) -> Brief:
    """What may be known of a parent in a round, from earlier rounds alone, so that a resumed round asks the same.

    Lessons are the ideas that led to the parent, siblings all other ideas of the run; `mate` is a second parent's id,
    `seen` the profiles of earlier rounds by source, all where it is None.
    """
    seen = run.profiles if seen is None else seen
    path = lineage(run, parent)
    own = list(dict.fromkeys(trial.idea for trial in path if trial.idea))
    others = [i for i in run.ideas.values() if i.round < round and i.id not in own]
    return Brief(
        problem=run.problem,
        description=run.description,
        round=round,
        parent=parent,
        parent_idea=run.ideas[parent.idea] if parent.idea else None,
        parent_evaluation=run.evaluation(parent),
        siblings=_outcomes(run, others, seen),
        lessons=_outcomes(run, (run.ideas[idea] for idea in own), seen),
        parent_profile=seen.get(parent.source_id),
        mate=_mate(run, run.trials[mate]) if mate else None,
    )


def mends(run: Run, idea: Idea, failed: Trial) -> tuple[Outcome, ...]:
    """What became of the versions of an implementation before the one that failed last."""
    found = []
    for trial in chain(run, idea, failed.attempt):
        evaluation = run.evaluation(trial)
        if trial.step < failed.step and evaluation is not None:
            name = f"repair {trial.step}" if trial.step else "first version"
            found.append(Outcome(name, evaluation.status, None, _remark(evaluation)))
    return tuple(found)


def _remark(evaluation: Evaluation) -> str:
    return next(iter(evaluation.log.strip().splitlines()), "")


def _outcomes(run: Run, ideas: Iterable[Idea], seen: Mapping[str, Profile]) -> tuple[Outcome, ...]:
    found = (outcome(run, idea, seen) for idea in ideas)
    return tuple(o for o in found if o is not None)
