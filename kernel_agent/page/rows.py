"""The rows of a run's page: an idea each, a trial each, in the order in which they came. Pure, and nothing bulky."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any

from kernel_agent.page.seen import Seen
from kernel_agent.run import tree
from kernel_agent.run.history import History
from kernel_agent.run.tree import Run
from kernel_agent.run.types import Evaluation, Idea, Interval, Trial
from kernel_agent.text import clean, line

TITLE = 200
"""Characters of a title; an idea's text holds it whole."""


def ideas(run: Run) -> Iterator[dict[str, Any]]:
    """Every idea. `predicted` is the promised factor over its parent."""
    for idea in run.ideas.values():
        yield {
            "id": idea.id,
            "round": idea.round,
            "parent": idea.parent,
            "second_parent": idea.second_parent,
            "title": line(idea.title, TITLE),
            "predicted": idea.predicted,
            "template": idea.change is not None,
        }


def trials(seen: Seen) -> Iterator[dict[str, Any]]:
    """Every trial, the original first. Times are `_us`, moments `_s` since the run began, money by then `_usd`."""
    clock = Clock(seen.history)
    for trial in seen.run.trials.values():
        yield {**_place(seen.run, trial), **_verdict(seen.run, trial), **clock.moments(trial)}


def _place(run: Run, trial: Trial) -> dict[str, Any]:
    return {
        "id": trial.id,
        "idea": trial.idea,
        "attempt": trial.attempt,
        "step": trial.step,
        "parent": trial.parent,
        "round": tree.round_of(run, trial),
        "source": trial.source_id,
        "title": line(tree.title(run, trial), TITLE),
        "kind": kind(run.ideas.get(trial.idea or ""), trial),
        "tuned": dict(trial.tuned),
    }


def kind(idea: Idea | None, trial: Trial) -> str:
    """How a trial came about: `original`, `seed` of the templates, `written` for an idea, `repaired`, or `swept`."""
    if idea is None:
        return "original"
    if trial.tuned:
        return "swept"
    if trial.step:
        return "repaired"
    return "seed" if idea.round == tree.SEEDING else "written"


def _verdict(run: Run, trial: Trial) -> dict[str, Any]:
    """The judge's word; the status is `waiting` where there is none yet."""
    evaluation = known(run, trial)
    if evaluation is None:
        return {"status": "waiting", "speedup": None}
    again = run.confirmations.get(trial.source_id)
    parent = run.trials.get(trial.parent or "")
    before = run.speedup(parent) if parent else None
    speedup = run.speedup(trial)
    return {
        "status": str(evaluation.status),
        **measures(evaluation),
        "gain": speedup / before if speedup and before else None,
        "again": {**measures(again), "status": str(again.status)} if again else None,
        "stands": tree.stands(run, trial) if again else None,
        "authorship": _text(evaluation.provenance.get("label")),
        "profile": _profile(run, trial),
        "judging_s": dict(evaluation.stages),
        "why": why(evaluation),
    }


def known(run: Run, trial: Trial) -> Evaluation | None:
    """The judge's word on a trial, or what the compiler said against a build that was not run."""
    return run.evaluation(trial) or run.poor_builds.get(trial.source_id)


def why(evaluation: Evaluation) -> str | None:
    """Why a kernel did not pass: the first that a compiler or the judge said; None of one that did."""
    if evaluation.timing is not None:
        return None
    said = (*map(str, evaluation.diagnostics), *clean(evaluation.log).strip().splitlines())
    return line(next(iter(said), ""), TITLE) or None


def measures(evaluation: Evaluation) -> dict[str, Any]:
    """The numbers of a verdict. Speed-ups are ratios with their 95 % intervals; errors are in rounding units."""
    compiled, timing = evaluation.compiled, evaluation.timing
    return {
        "time_us": timing.median_us if timing else None,
        "time_us_interval": [timing.low_us, timing.high_us] if timing else None,
        "speedup": evaluation.speedup,
        "speedup_interval": ends(evaluation.against("eager")),
        "comparison": evaluation.comparison,
        "versus_compile": compiled.speedup.median if compiled else None,
        "error_units": evaluation.error,
        "allowed_units": evaluation.allowed,
    }


def ends(interval: Interval | None) -> list[float] | None:
    """The ends of an interval."""
    return [interval.low, interval.high] if interval else None


def _profile(run: Run, trial: Trial) -> dict[str, Any] | None:
    profile = run.profiles.get(trial.source_id)
    return {"bound": line(profile.bound), "rung": line(profile.rung)} if profile else None


def _text(value: object) -> str | None:
    return None if value is None else line(str(value))


class Clock:
    """When a trial was written and judged, and what the run had paid its models by then."""

    def __init__(self, history: History) -> None:
        self._since = history.since_start()
        self._recorded = history.recorded
        paid = [(one.at, one.charge) for one in history.paid if one.at is not None]
        self._at = [at for at, _ in paid]
        self._usd = [0.0, *accumulate(charge.dollars or 0.0 for _, charge in paid)]
        self._tokens = [0, *accumulate(charge.prompt_tokens + charge.reply_tokens for _, charge in paid)]

    def moments(self, trial: Trial) -> Mapping[str, float | int | None]:
        """Those of one trial; without money where no charge has a moment."""
        judged = ("judgement", trial.source_id)
        found: dict[str, float | int | None] = {
            "written_s": self._since.get(("trial", trial.id)),
            "judged_s": self._since.get(judged),
        }
        if self._at and judged in self._recorded:
            count = bisect_right(self._at, self._recorded[judged])
            found |= {"spent_usd": self._usd[count], "spent_tokens": self._tokens[count]}
        return found
