"""How far a problem of a suite has come, read off the journal of its run."""

from __future__ import annotations

from pathlib import Path

from kernel_agent.errors import KernelAgentError
from kernel_agent.run import tree
from kernel_agent.run.budget import Limits
from kernel_agent.run.history import read_whole
from kernel_agent.run.journal import begun
from kernel_agent.run.spending import spent_so_far
from kernel_agent.suite.grants import History
from kernel_agent.suite.plan import Grant
from kernel_agent.suite.types import Outcome, State


def history(directory: Path, outcome: Outcome, grants: tuple[Grant, ...]) -> History:
    """What the run in a directory has used and reached; nothing where none has begun or its journal cannot be read."""
    done = outcome.state is State.DONE
    played_out = done and outcome.stopped is None
    used = Limits(0.0, 0, outcome.under_way_minutes)
    bare = History(outcome.problem, outcome.state, grants, used, spent_out=outcome.spent, played_out=played_out)
    if not begun(directory):
        return bare
    try:
        run, told = read_whole(directory)
    except KernelAgentError:  # such as a run that was stopped before its problem was described
        return bare
    best, cost = tree.best(run), spent_so_far(told)
    evaluation = run.evaluation(best)
    timed = evaluation.timing if evaluation else None
    return History(
        outcome.problem,
        outcome.state,
        grants,
        Limits(cost["dollars"] or 0.0, cost["prompt_tokens"] + cost["reply_tokens"], cost["seconds"] / 60),
        run.speedup(best) or 1.0,
        run.description.reached(timed.median_us) if timed and best.idea else None,
        len(run.evaluations),
        outcome.spent,
        played_out,
    )
