"""What is known of a run, as one JSON value: a number has its unit in its name. Pure; the bulk stands in `texts`.

Names end in `_us` and `_s` for times, `_usd` for dollars, `_bytes`, `_gbps`, `_tflops`; what ends in none of them is a
count, a ratio or a name.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from typing import Any

from kernel_agent.delivery.files import ours
from kernel_agent.delivery.sheet import Remark, Sheet, remarks
from kernel_agent.page import rows
from kernel_agent.page.seen import Seen
from kernel_agent.page.words import measured
from kernel_agent.run import tree
from kernel_agent.run.budget import spending
from kernel_agent.run.tree import Run
from kernel_agent.run.types import Description, Trial, baseline_title
from kernel_agent.settings import provider_of
from kernel_agent.targets import target_of
from kernel_agent.text import line

FORM = 1
"""Changes when a page of before could no longer be read."""

WAITS = ("queue_s",)
DEVICE = ("check_s", "time_s", "attribute_s", "open_s")


def facts(seen: Seen) -> dict[str, Any]:
    """All that a run's page draws."""
    run, winner = seen.run, tree.winner(seen.run)
    return {
        "form": FORM,
        "made_by": " ".join(filter(None, ("KernelAgent", ours()))),
        "directory": line(str(seen.directory)),
        "name": line(run.problem.name),
        "target": run.problem.target,
        "state": seen.state,
        "began": next(iter(seen.history.recorded.values()), None),
        "changed": max(seen.history.recorded.values(), default=None),
        "provider": provider_of(run.settings),
        "models": _models(seen),
        "retrieval": seen.retrieval,
        "device": _device(run),
        "work": _work(run),
        "baselines": list(_baselines(run)),
        "kept": _kept(run),
        "headline": headline(run, winner),
        "ideas": list(rows.ideas(run)),
        "trials": list(rows.trials(seen)),
        "unwritten": [
            {"idea": one.idea, "attempt": one.attempt, "step": one.step, "reason": line(one.reason, 400)}
            for one in run.unwritten.values()
        ],
        "lineage": [trial.id for trial in tree.lineage(run, _best(run, winner))],
        "ranking": [trial.id for trial in tree.ranking(run)],
        "progress": _progress(seen),
        "spent": _spent(seen),
        "stages": list(stages(seen)),
        "sheet": list(sheet(run, winner)),
        "tried_alone": list(_alone(run, winner)),
        "measured": [line(row, 600) for row in measured(run, seen.retrieval)],
        "commands": list(commands(seen, winner)),
    }


def _kept(run: Run) -> dict[str, Any] | None:
    """Why templates had nothing to try, and of each part why it stays PyTorch's; None where they had."""
    regions = run.description.regions
    if regions is None or regions.covers or run.evaluations:
        return None
    return {"reason": line(regions.reason, 400), "parts": [line(row, 400) for row in regions.told()]}


def summary(seen: Seen) -> dict[str, Any]:
    """What a list of runs says of one."""
    head = headline(seen.run, tree.winner(seen.run))
    return {
        "name": line(seen.run.problem.name),
        "target": seen.run.problem.target,
        "progress": _progress(seen),
        "spent": _spent(seen),
        "headline": {name: head[name] for name in ("sure", "title", "speedup", "speedup_interval")},
    }


def _models(seen: Seen) -> list[str]:
    return [line(name) for name in dict.fromkeys(paid.charge.model for paid in seen.history.paid)]


def _device(run: Run) -> dict[str, Any]:
    device = run.description.device
    return {
        "name": line(device.name),
        "arch": line(device.arch),
        "threads": None if target_of(device.target).on_gpu else device.threads,
        "copy_gbps": device.copy_gbps,
        "features": [line(feature) for feature in device.features],
    }


def _work(run: Run) -> dict[str, Any]:
    """The counted work of one call, and the time below which the device cannot do it."""
    known = run.description
    return {
        "flops": known.flops,
        "moved_bytes": known.bytes,
        "limit_us": known.admissible_us,
        "moving_us": known.bytes_us,
        "limit_rate": _limit_rate(known),
        "noise": target_of(run.problem.target).noise,
    }


def _limit_rate(known: Description) -> str | None:
    """What the limit counts: the way to multiply that makes it, or the server's measured rate."""
    way = known.admissible
    told = f"by {way.name}" if way and way.limit_us != known.limit_us else known.limit_rate
    return line(told) if told else None


def _baselines(run: Run) -> Iterator[dict[str, Any]]:
    for name, timing in run.description.baselines.items():
        interval = [timing.low_us, timing.high_us]
        yield {
            "name": name,
            "title": baseline_title(name),
            "time_us": timing.median_us,
            "time_us_interval": interval,
            "compiled": name != "eager",
        }


def _best(run: Run, winner: Trial) -> Trial:
    """The winner, where one is confirmed, else the fastest by its first judgement."""
    return winner if winner.idea else tree.best(run)


def headline(run: Run, winner: Trial) -> dict[str, Any]:
    """The best kernel and how sure it is: `confirmed` by a second judgement, by its `first` one, or `none`.

    `reached` is the share of the limit; `versus` holds the paired speed-up against each baseline beside it.
    """
    best = _best(run, winner)
    evaluation = run.confirmations[winner.source_id] if winner.idea else run.evaluation(best)
    assert evaluation is not None and evaluation.timing is not None, "what is best has passed"
    time_us = evaluation.timing.median_us
    versus = [
        {
            "title": baseline_title(one.baseline),
            "compiled": one.baseline != "eager",
            "time_us": one.timing.median_us,
            "time_us_interval": [one.timing.low_us, one.timing.high_us],
            "speedup": one.speedup.median,
            "speedup_interval": rows.ends(one.speedup),
            "verdict": one.verdict,
        }
        for one in evaluation.versus
    ]
    return {
        "sure": "confirmed" if winner.idea else "first" if best.idea else "none",
        "trial": best.id,
        "title": line(tree.title(run, best), rows.TITLE),
        "versus": versus,
        "reached": run.description.reached(time_us),
        "gbps": run.description.bytes / time_us / 1e3,
        "tflops": run.description.flops / time_us / 1e6,
        "arithmetic": evaluation.arithmetic,
        "samples": evaluation.timing.samples,
        "authorship": line(str(evaluation.provenance.get("label", ""))) or None,
        "facts": {line(name): line(str(value), 300) for name, value in evaluation.provenance.items()},
        **rows.measures(evaluation),
        "again": list(_contenders(run)),
    }


def _contenders(run: Run) -> Iterator[dict[str, Any]]:
    for trial in tree.contenders(run):
        if (word := run.confirmations.get(trial.source_id)) is not None:
            delivery = run.deliveries.get(trial.source_id)
            why = delivery.why_not if delivery else ""
            yield {
                "trial": trial.id,
                "stands": tree.stands(run, trial),
                "status": str(word.status),
                "why": line(why, 300),
                **rows.measures(word),
            }


def _progress(seen: Seen) -> dict[str, Any]:
    """How far the search is. `expected` evaluations are those of all rounds without repairs and sweeps."""
    run, settings = seen.run, seen.run.settings
    wanted = settings.num_rounds * settings.branching_factor * settings.implementations_per_idea
    written = [trial for trial in run.trials.values() if trial.idea and not trial.step]
    done = sum(1 for trial in written if run.evaluation(trial))
    share = min(1.0, done / wanted) if wanted else 1.0
    if seen.state == "finished":
        share = 1.0
    charged = seen.history.seconds
    return {
        "round": max((idea.round for idea in run.ideas.values()), default=0),
        "rounds": settings.num_rounds,
        "judged": len(run.evaluations),
        "expected": wanted,
        "share": share,
        "left_s": charged * (1 - share) / share if seen.state == "running" and share > 0 else None,
        "waiting": [trial.id for trial in run.trials.values() if trial.idea and rows.known(run, trial) is None],
        "unwritten": [idea.id for idea in run.ideas.values() if (idea.id, 0) not in run.chains],
    }


def _spent(seen: Seen) -> dict[str, Any]:
    run, settings = seen.run, seen.run.settings
    judged = [evaluation.stages for evaluation in (*run.evaluations.values(), *run.confirmations.values())]
    found = spending((paid.charge for paid in seen.history.paid), judged, seen.history.seconds)
    return {
        "calls": found["calls"],
        "usd": found["dollars"],
        "tokens": found["prompt_tokens"] + found["reply_tokens"],
        "charged_s": found["seconds"],
        "models": {
            name: {"calls": row["calls"], "tokens": row["prompt_tokens"] + row["reply_tokens"], "usd": row["dollars"]}
            for name, row in found["models"].items()
        },
        "limits": {
            "usd": settings.budget_dollars,
            "tokens": settings.budget_tokens,
            "minutes": settings.budget_minutes,
        },
    }


def stages(seen: Seen) -> Iterator[dict[str, Any]]:
    """Where the work of a run went, added up over what goes on at the same time, in seconds."""
    run = seen.run
    judged: Counter[str] = Counter()
    for evaluation in (*run.evaluations.values(), *run.confirmations.values()):
        judged.update({name: float(took) for name, took in evaluation.stages.items()})
    device = judged["held_s"] or sum(judged[name] for name in DEVICE)
    yield {"name": "model", "title": "model calls", "s": sum(paid.charge.seconds for paid in seen.history.paid)}
    yield {"name": "build", "title": "compilers", "s": judged["build_s"]}
    yield {"name": "prepare", "title": "inputs and expected outputs", "s": judged["prepare_s"]}
    yield {"name": "device", "title": "checking and timing on the device", "s": device}
    yield {"name": "wait", "title": "waiting for a core or the device", "s": sum(judged[name] for name in WAITS)}


def sheet(run: Run, winner: Trial) -> Iterator[dict[str, Any]]:
    """What was verified of the winner and what was not; nothing where there is no winner."""
    if winner.idea:
        for remark in remarks(Sheet(run, winner, run.settings.bind, ours())):
            yield _remark(remark)


def _remark(remark: Remark) -> dict[str, Any]:
    return {"holds": remark.holds, "text": line(remark.text, 1200)}


def _alone(run: Run, winner: Trial) -> Iterator[dict[str, Any]]:
    """What was tried of the winner's file by itself."""
    delivery = run.deliveries.get(winner.source_id)
    for check in delivery.checks if delivery else ():
        yield {"name": line(check.name), "ok": check.ok, "why": line(check.why, 400)}


def commands(seen: Seen, winner: Trial) -> Iterator[dict[str, str]]:
    """What repeats the run, goes on with it, and judges its kernel again."""
    here, run, settings = shlex.quote(str(seen.directory)), seen.run, seen.run.settings
    provider = provider_of(settings)
    more = "" if provider == "templates" else f" --provider {provider}"
    yield {
        "what": "search again",
        "command": f"python -m kernel_agent run {shlex.quote(run.problem.name)}.py --target {run.problem.target} "
        f"--rounds {settings.num_rounds} --ideas {settings.branching_factor} "
        f"--implementations {settings.implementations_per_idea}{more}",
    }
    if seen.state == "stopped":
        yield {"what": "go on with this run", "command": f"python -m kernel_agent resume {here}"}
    if winner.idea:
        yield {
            "what": "judge the kernel again",
            "command": f"python -m kernel_agent evaluate {here}/best_kernel.py --problem "
            f"{shlex.quote(run.problem.name)}.py --target {run.problem.target}",
        }
    yield {"what": "the account on a terminal", "command": f"python -m kernel_agent show {here}"}
    yield {"what": "this page", "command": f"python -m kernel_agent report {here}"}
