"""The bulk of a run's page: sources, logs, ideas whole, profiles and passages, each by what it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from kernel_agent.run.tree import Run
from kernel_agent.run.types import Evaluation, Idea, Profile, Trial
from kernel_agent.text import clean
from rag import Library, LibraryError, Passage

Lookup = Callable[[Iterable[str]], tuple[Passage, ...]]
"""What gives passages by their ids."""

LOG = 20_000
"""Characters of a log; of a longer one its beginning and its end are kept."""


def texts(run: Run, lookup: Lookup) -> dict[str, Any]:
    """All texts. Sources, logs and profiles are keyed by a source's id, ideas by theirs, passages by theirs."""
    chained = (trial for chain in run.chains.values() for trial in chain)  # those alike beside one another
    return {
        "problem": clean(run.problem.source),
        "sources": {trial.source_id: clean(trial.source) for trial in (run.reference, *chained)},
        "logs": {
            source: log(found)
            for source, found in (run.poor_builds | run.evaluations).items()
            if found.log or found.diagnostics
        },
        "again": {source: log(found) for source, found in run.confirmations.items() if found.log},
        "profiles": {source: profile(found) for source, found in run.profiles.items()},
        "ideas": {idea.id: whole(idea) for idea in run.ideas.values()},
        "passages": passages(run, lookup),
    }


def one(run: Run, trial: Trial, lookup: Lookup) -> dict[str, Any]:
    """The texts of one trial and of its parent, in the same form."""
    parent = run.trials.get(trial.parent or "")
    ids = {other.source_id for other in (trial, parent) if other}
    narrow = Run(run.problem, run.settings, run.description)
    narrow.chains = {("", 0): [other for other in (trial, parent) if other]}
    narrow.evaluations = {key: value for key, value in run.evaluations.items() if key in ids}
    narrow.poor_builds = {key: value for key, value in run.poor_builds.items() if key in ids}
    narrow.confirmations = {key: value for key, value in run.confirmations.items() if key in ids}
    narrow.profiles = {key: value for key, value in run.profiles.items() if key in ids}
    narrow.ideas = {key: value for key, value in run.ideas.items() if key == trial.idea}
    return texts(narrow, lookup)


def log(evaluation: Evaluation) -> str:
    """What the judge said, whole up to a length."""
    said = clean(evaluation.log)
    return said if len(said) <= LOG else f"{said[: LOG // 2]}\n[...]\n{said[-LOG // 2 :]}"


def profile(found: Profile) -> dict[str, Any]:
    """A profile's words, and its hot lines as data."""
    return {name: _clean(value) for name, value in asdict(found).items()}


def whole(idea: Idea) -> dict[str, Any]:
    """An idea's fields, and the genes of a template."""
    return {
        "title": clean(idea.title),
        "bottleneck": clean(idea.bottleneck),
        "transformation": clean(idea.transformation),
        "reasoning": clean(idea.reasoning),
        "predicted_gain": clean(idea.predicted_gain),
        "risk": clean(idea.risk),
        "passages": list(idea.passages),
        "genes": {clean(str(name)): clean(str(value)) for name, value in (idea.change or {}).items()},
    }


def passages(run: Run, lookup: Lookup) -> dict[str, dict[str, str]]:
    """What was read for the run's ideas, by id, with where it stands."""
    wanted = dict.fromkeys(name for idea in run.ideas.values() for name in idea.passages)
    return {
        passage.id: {
            "title": clean(passage.title),
            "heading": clean(passage.heading),
            "source": clean(passage.source),
            "text": clean(passage.text),
        }
        for passage in (lookup(wanted) if wanted else ())
    }


def from_library(names: Iterable[str]) -> tuple[Passage, ...]:
    """The passages as the library of this machine has them; none where it cannot be opened."""
    try:
        with Library.open(mode="lexical") as library:
            return library.passages(names)
    except LibraryError:
        return ()


def _clean(value: object) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {name: _clean(one) for name, one in value.items()}
    return [_clean(one) for one in value] if isinstance(value, list | tuple) else value
