"""A run in which every text that a model, a problem or a compiler writes tries to be markup and to run."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

from kernel_agent.page.seen import Seen, see
from kernel_agent.run.budget import Charge
from kernel_agent.run.journal import Journal
from kernel_agent.run.measured import Launch
from kernel_agent.run.module_checks import Delivery, ModuleCheck
from kernel_agent.run.tree import Baseline, Confirmation, Delivered, Diagnosis, EvaluationRecord, Ideas, Unwritten
from kernel_agent.run.types import (
    Diagnostic,
    Evaluation,
    HotSpot,
    Idea,
    Problem,
    Profile,
    Status,
    Trial,
)
from tests.support.page_runs import passed
from tests.support.scripted_run import DESCRIPTION, small_settings

HOSTILE = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=1>{{FACTS}}\u2028'\"`${alert(1)}"


def hostile_run(directory: Path) -> Seen:
    """It is finished: what wins is named, sourced, profiled and delivered with hostile words."""
    device = replace(DESCRIPTION.device, name=HOSTILE, arch=HOSTILE, features=(HOSTILE,))
    described = replace(DESCRIPTION, device=device, notes=(HOSTILE,), limit_rate=HOSTILE, compiled=(HOSTILE,))
    with Journal.create(directory) as journal:
        journal.begin(Problem(HOSTILE, HOSTILE, "cpu"), small_settings(budget_dollars=9.0))
        journal.describe(described)
        run = journal.load()
        words = {one.name: HOSTILE for one in fields(Idea) if one.type == "str" and one.name not in ("id", "parent")}
        change = {HOSTILE: HOSTILE}
        idea = Idea(
            id="a", round=1, parent=run.reference.id, change=change, passages=(HOSTILE,), predicted=2.0, **words
        )
        good = Trial("a", 0, 0, run.reference.id, f"{HOSTILE}\n# kernel: {HOSTILE}\n", (("N", HOSTILE),))
        bad, child = Trial("a", 1, 0, run.reference.id, HOSTILE), Trial("a", 2, 0, good.id, f"{HOSTILE}\n# child\n")
        error = Diagnostic("error", HOSTILE, HOSTILE, 3, HOSTILE)
        wrong = Evaluation(Status.WRONG, HOSTILE, error=1e6, provenance={HOSTILE: HOSTILE}, diagnostics=(error,))
        facts = {"label": HOSTILE, "walls": HOSTILE, HOSTILE: HOSTILE}
        won = replace(passed(3.0, compiled=True), log=HOSTILE, provenance=facts)
        profile = Profile(HOSTILE, HOSTILE, HOSTILE, *[(HOSTILE,)] * 6, report=HOSTILE)
        profile = replace(profile, hot_spots=(HotSpot(1, 50.0, HOSTILE),))
        checks = (
            *(ModuleCheck(name, True, HOSTILE) for name in ("builds", "agrees")),
            ModuleCheck("to", None, HOSTILE),
        )
        for record in (
            Baseline(
                "reduce-overhead", DESCRIPTION.baselines["compile"], (HOSTILE,), (HOSTILE,), (Launch(HOSTILE, 1.0, 1),)
            ),
            Ideas(1, (idea,)),
            *(good, bad, child),
            Unwritten("a", 5, 0, HOSTILE),
            EvaluationRecord(good.source_id, won),
            EvaluationRecord(bad.source_id, wrong),
            EvaluationRecord(child.source_id, replace(passed(2.0), log=HOSTILE)),
            Diagnosis(good.source_id, profile),
            Confirmation(good.source_id, won),
            Delivered(good.source_id, Delivery("torch", checks)),
        ):
            journal.append(record, 3.0)
        journal.charge(Charge(HOSTILE, HOSTILE, 10, 10, 0.1, 1.0))
    (directory / "best_kernel.py").write_text(HOSTILE)
    return see(directory)
