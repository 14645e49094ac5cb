"""What a run's journal says that it cost, against what its settings allow."""

from __future__ import annotations

from typing import Any

from kernel_agent.run.budget import Budget, Clock, Limits, spending
from kernel_agent.run.journal import Journal
from kernel_agent.run.tree import Run
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
    return spending(journal.charges(), judged, journal.seconds)
