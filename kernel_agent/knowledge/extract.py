"""What a run leaves to later ones, and what of earlier ones fits a problem or a brief. Pure functions of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from kernel_agent.knowledge.situation import bottleneck, limited_by, operators_of
from kernel_agent.run import tree
from kernel_agent.run.brief import Brief
from kernel_agent.run.tree import Run
from kernel_agent.run.types import Evaluation, Idea, Interval, Status, Trial, digest
from kernel_agent.targets import target_of
from rag.experience.ledger import EAGER, Experience, Failure, Gain, Verdict
from rag.retrieval.plan import families_of

EVERYWHERE = frozenset({"pointwise", "layout"})
"""Families that stand beside others in most problems: they make two problems alike only where there are no others."""

NAME, TITLE, TOLD = 120, 200, 600
"""Characters that are kept of a name, of a title, and of a transformation or a reason."""

OPERATORS = 60
"""Operators of a problem that are kept."""


def learnt(run: Run) -> tuple[Experience, ...]:
    """An experience for each implementation that was judged: its fastest trial that passed, else its last one.

    Where a source was judged twice the second judgement counts. Nothing of a run that cannot be told from others, or
    of a problem whose operators are not known.
    """
    operators = operators_of(run.problem, run.description)
    if run.recalled is None or not operators:
        return ()
    device = run.description.device
    shared = {
        "run": run.recalled.run,
        "date": run.recalled.date,
        "problem": _short(run.problem.name, NAME),
        "target": run.problem.target,
        "arch": _short(device.arch, NAME),
        "device": _short(device.name, NAME),
        "families": families_of(operators),
        "operators": tuple(_short(name, NAME) for name in operators[:OPERATORS]),
        **{name: _version(run, name) for name in ("torch", "toolkit")},
    }
    found: dict[str, Experience] = {}
    for (idea, _), chain in run.chains.items():
        trial = _standing(run, chain)
        if idea is not None and trial is not None and trial.source_id not in found:
            found[trial.source_id] = _experience(run, run.ideas[idea], trial, shared)
    return tuple(found.values())


def experiences_for_problem(run: Run, known: Iterable[Experience]) -> tuple[Experience, ...]:
    """What others have measured on this class of device with operators of these kinds."""
    own = run.recalled.run if run.recalled else None
    target, arch = run.problem.target, run.description.device.arch
    kinds = _kinds(families_of(operators_of(run.problem, run.description)))
    alike = (one for one in known if (one.target, one.arch) == (target, arch) and one.run != own)
    return tuple(one for one in alike if kinds & _kinds(one.families))


def experiences_for_brief(run: Run, brief: Brief) -> tuple[Experience, ...]:
    """What was recalled for kernels that are limited by what limits the brief's parent."""
    if run.recalled is None:
        return ()
    limit = bottleneck(brief)
    return tuple(one for one in run.recalled.experiences if one.bottleneck == limit)


def question(run: Run) -> str:
    """The problem in the words that its operators have."""
    operators = operators_of(run.problem, run.description)
    return " ".join((*families_of(operators), *operators))


def _kinds(families: Iterable[str]) -> frozenset[str]:
    return frozenset(families) - EVERYWHERE or frozenset(families)


def _standing(run: Run, chain: Iterable[Trial]) -> Trial | None:
    """The trial that stands for an implementation."""
    judged = [trial for trial in sorted(chain, key=lambda trial: trial.step) if run.evaluation(trial)]
    passed = [trial for trial in judged if run.speedup(trial)]
    if passed:
        return max(passed, key=lambda trial: run.speedup(trial) or 0.0)
    return judged[-1] if judged else None


def _experience(run: Run, idea: Idea, trial: Trial, shared: Mapping[str, Any]) -> Experience:
    parent, evaluation = run.trials[idea.parent], _word(run, trial)
    speedup = evaluation.against("eager") if evaluation.status is Status.PASSED else None
    gain = _over(speedup, _parent_speedup(run, parent)) if speedup else None
    return Experience(
        **shared,
        id=digest(shared["run"], trial.id),
        bottleneck=limited_by(run.description, run.profiles.get(parent.source_id)),
        title=_short(tree.own_title(idea, trial).removeprefix("seed: "), TITLE) or "without a title",
        transformation=_short(idea.transformation, TOLD),
        predicted=idea.predicted,
        verdict=_verdict(run, parent, evaluation, gain) if gain else cast(Failure, str(evaluation.status)),
        baseline=_short(tree.title(run, parent).removeprefix("seed: "), TITLE) if parent.idea else EAGER,
        gain=gain,
        speedup=_gain(speedup) if speedup else None,
        compiled=_gain(evaluation.compiled.speedup) if speedup and evaluation.compiled else None,
        confirmed=trial.source_id in run.confirmations,
        why=_short("; ".join(_why(run, idea, trial, evaluation)), TOLD),
    )


def _word(run: Run, trial: Trial) -> Evaluation:
    """The last judgement of a trial that was judged."""
    evaluation = run.confirmations.get(trial.source_id) or run.evaluation(trial)
    assert evaluation is not None, "only what was judged is asked for"
    return evaluation


def _parent_speedup(run: Run, parent: Trial) -> Interval:
    """A parent's speed-up over eager PyTorch by the last judgement that it passed."""
    first = run.evaluation(parent)
    for evaluation in (run.confirmations.get(parent.source_id), first) if parent.idea else ():
        if evaluation and evaluation.status is Status.PASSED and (found := evaluation.against("eager")):
            return found
    return Interval(1.0, 1.0, 1.0)


def _over(speedup: Interval, before: Interval) -> Gain:
    """The factor between two speed-ups, its interval as wide as theirs together."""
    return Gain(speedup.low / before.high, speedup.median / before.median, speedup.high / before.low)


def _gain(interval: Interval) -> Gain:
    return Gain(interval.low, interval.median, interval.high)


def _verdict(run: Run, parent: Trial, evaluation: Evaluation, gain: Gain) -> Verdict:
    """The server's verdict over eager PyTorch; over another kernel, which it did not compare, by the noise."""
    if parent.idea is None and evaluation.comparison is not None:
        return evaluation.comparison
    noise = target_of(run.problem.target).noise
    if gain.low > 1 + noise:
        return "faster"
    return "slower" if gain.high < 1 - noise else "inconclusive"


def _why(run: Run, idea: Idea, trial: Trial, evaluation: Evaluation) -> Iterator[str]:
    """Of a failure what the judge said, of a kernel the reason that it was tried for and what limits it now."""
    if evaluation.status is not Status.PASSED:
        again = " when judged again" if trial.source_id in run.confirmations else ""
        repairs = f" after {trial.step} repair{'s' if trial.step > 1 else ''}" if trial.step else ""
        said = next(iter(evaluation.log.strip().splitlines()), "the judge gave no reason")
        yield f"{said}{again}{repairs}"
        return
    if idea.change is None and idea.reasoning:
        yield _short(idea.reasoning, TOLD)
    if (profile := run.profiles.get(trial.source_id)) is not None and profile.bound != "unknown":
        yield f"then bound by {profile.bound}: {next(iter(profile.findings), profile.why)}"


def _version(run: Run, name: str) -> str | None:
    """What the judge says that it measured with."""
    told = (evaluation.provenance.get(name) for evaluation in run.evaluations.values())
    found = next((value for value in told if value), None)
    return None if found is None else _short(str(found), NAME)


def _short(text: str, limit: int) -> str:
    """One line of at most `limit` characters, none of them half a character."""
    flat = " ".join(text.encode("utf-8", "replace").decode().split())
    return flat if len(flat) <= limit else f"{flat[: limit - 3]}..."
