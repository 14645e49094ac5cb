"""What a run found, as JSON values."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from kernel_agent.run import tree
from kernel_agent.run.devices import as_json, used
from kernel_agent.run.regions import Regions
from kernel_agent.run.types import Description, Interval, Timing, Trial


def results(run: tree.Run, directory: Path) -> dict[str, Any]:
    """What a run found, as JSON values. Times are microseconds, speed-ups ratios, intervals [low, high] at 95 %.

    The numbers of an improvement are those of the second judgement; without one the original stands for itself.
    """
    winner = tree.winner(run)
    evaluation = run.confirmations[winner.source_id] if winner.idea else run.evaluation(winner)
    assert evaluation is not None and evaluation.timing is not None, "a winner has passed"
    eager, compiled = evaluation.against("eager"), evaluation.compiled
    times = {versus.baseline: versus.timing.median_us for versus in evaluation.versus}
    time_us, idea = evaluation.timing.median_us, run.ideas[winner.idea] if winner.idea else None
    return {
        "status": "improved" if idea else "no_improvement",
        "speedup": eager.median if eager else None,
        "speedup_interval": _ends(eager),
        "speedup_vs_compile": compiled.speedup.median if compiled else None,
        "speedup_vs_compile_interval": _ends(compiled.speedup if compiled else None),
        "compile_mode": compiled.baseline if compiled else None,
        "optimization_idea": tree.title(run, winner) if idea else None,
        "error": evaluation.error,
        "error_allowed": evaluation.allowed,
        "arithmetic": evaluation.arithmetic,
        "time_us": time_us,
        "reference_us": times.get("eager"),
        "compile_us": compiled.timing.median_us if compiled else None,
        "limit_us": run.description.admissible_us,
        "reached": run.description.reached(time_us),
        "reached_interval": _ends(reached(run.description, evaluation.timing)),
        "authorship": evaluation.provenance.get("label") if idea else None,
        "gbps": run.description.bytes / time_us / 1e3,
        "tflops": run.description.flops / time_us / 1e6,
        "run_directory": str(directory),
        "target": run.problem.target,
        "device": run.description.device.name,
        "copy_gbps": run.description.device.copy_gbps,
        "rounds": max((i.round for i in run.ideas.values()), default=0),
        "trials": len(run.trials) - 1,
        "evaluations": len(run.evaluations) + len(run.confirmations),
        "unwritten": [
            {"idea": run.ideas[one.idea].title, "attempt": one.attempt, "step": one.step, "reason": one.reason}
            for one in run.unwritten.values()
        ],
        "regions": _regions(run.description.regions),
        "devices": [as_json(device) for device in used(run)],
        "lineage": _titles(run, winner),
        "ranking": [_row(run, place, trial) for place, trial in enumerate(tree.ranking(run), 1)],
    }


def _regions(found: Regions | None) -> dict[str, Any] | None:
    """How the templates cut the module."""
    return asdict(found) | {"kept": [asdict(one) for one in found.kept]} if found else None


def reached(description: Description, timing: Timing) -> Interval | None:
    """The share of the limit that a measured time reaches, with the ends of its interval; None without a limit."""
    share = description.reached(timing.median_us)
    if share is None:
        return None
    whole = share * timing.median_us
    return Interval(whole / timing.high_us, share, whole / timing.low_us)


def _row(run: tree.Run, rank: int, trial: Trial) -> dict[str, Any]:
    evaluation = run.evaluation(trial)
    assert evaluation is not None, "only what was judged is ranked"
    confirmation = run.confirmations.get(trial.source_id)
    return {
        "rank": rank,
        "trial": trial.id,
        "round": tree.round_of(run, trial),
        "idea": tree.title(run, trial),
        "speedup": evaluation.speedup,
        "speedup_interval": _ends(evaluation.against("eager")),
        "error": evaluation.error,
        "confirmed": tree.stands(run, trial) if confirmation else None,
        "confirmed_speedup": confirmation.speedup if confirmation else None,
        "confirmed_speedup_interval": _ends(confirmation.against("eager")) if confirmation else None,
        "lineage": _titles(run, trial),
    }


def _titles(run: tree.Run, trial: Trial) -> list[str]:
    titles = {t.idea: tree.title(run, t) for t in tree.lineage(run, trial) if t.idea}
    return list(titles.values())


def _ends(interval: Interval | None) -> list[float] | None:
    return [interval.low, interval.high] if interval else None
