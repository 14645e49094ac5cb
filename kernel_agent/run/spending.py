"""What a run's journal says that it cost, against what its settings allow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kernel_agent.run.budget import Budget, Clock, Limits, spending
from kernel_agent.run.history import History
from kernel_agent.run.journal import Journal
from kernel_agent.run.tree import Run
from kernel_agent.run.types import JSON
from kernel_agent.settings import Settings


def budget_of(journal: Journal, settings: Settings) -> Budget:
    """The limits of the settings, with what the run has used of them so far; what it goes on to use is written down."""
    charges = journal.charges()
    return Budget(
        Limits(settings.budget_dollars, settings.budget_tokens, settings.budget_minutes),
        sum(charge.dollars or 0.0 for charge in charges),
        sum(charge.prompt_tokens + charge.reply_tokens for charge in charges),
        Clock(journal.seconds),
        journal.charge,
    )


def spent(run: Run, journal: Journal) -> dict[str, Any]:
    """See `spending`; judging counts first and second judgements alike."""
    judged = [evaluation.stages for evaluation in (*run.evaluations.values(), *run.confirmations.values())]
    return spending(journal.charges(), judged, journal.seconds) | {"parts": by_part(journal.calls())}


def spent_so_far(history: History) -> dict[str, Any]:
    """What a run cost so far, without the times of judging."""
    return spending([one.charge for one in history.paid], (), history.seconds)


def by_part(calls: Iterable[tuple[str, str, JSON]]) -> dict[str, dict[str, int]]:
    """What each part of the prompts took, the dearest first: characters, and its share of the tokens that were told."""
    found: dict[str, dict[str, int]] = {}
    for _, _, about in calls:
        parts: Mapping[str, int] = about.get("parts") or {}
        whole = sum(parts.values()) or 1
        for name, characters in parts.items():
            row = found.setdefault(name, {"characters": 0, "tokens": 0})
            row["characters"] += characters
            row["tokens"] += round(about.get("prompt_tokens", 0) * characters / whole)
    return dict(sorted(found.items(), key=lambda row: -row[1]["characters"]))
