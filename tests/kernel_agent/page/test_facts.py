"""What is known of a run as one JSON value."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from kernel_agent.cli.show import branches
from kernel_agent.page.facts import facts, summary
from kernel_agent.page.rows import Clock
from kernel_agent.page.seen import Seen, see
from kernel_agent.page.texts import one, texts
from kernel_agent.run import tree
from kernel_agent.run.budget import Charge
from kernel_agent.run.history import PAUSE_S, History, Paid, stamp
from kernel_agent.run.journal import Journal
from kernel_agent.run.tree import Run
from kernel_agent.run.types import Evaluation, Status, Trial
from rag import Passage
from tests.support.page_runs import failed, passed, write
from tests.support.scripted_run import DESCRIPTION, MODEL, PROBLEM, small_settings


def seen_run(*records: tree.Record) -> Seen:
    run = Run(PROBLEM, small_settings(), DESCRIPTION)
    for record in records:
        run.record(record)
    return Seen(Path("runs/a b"), run, History(), "stopped")


def tried(*evaluations: object) -> Seen:
    """A run of one idea, an implementation for each verdict."""
    from kernel_agent.run.types import Evaluation, Idea

    reference = Trial(None, 0, 0, None, PROBLEM.source)
    records: list[tree.Record] = [tree.Ideas(1, (Idea("a", 1, reference.id, "tile", passages=("p1", "gone")),))]
    for number, evaluation in enumerate(evaluations):
        assert isinstance(evaluation, Evaluation)
        trial = Trial("a", number, 0, reference.id, f"# {number}")
        records += [trial, tree.EvaluationRecord(trial.source_id, evaluation)]
    return seen_run(*records)


def test_facts_are_json_and_tell_every_trial_with_its_place(recorded: Path) -> None:
    seen = see(recorded)
    found = json.loads(json.dumps(facts(seen), allow_nan=False))
    assert [row["id"] for row in found["trials"]] == list(seen.run.trials)
    known = {row["id"] for row in found["trials"]} | {None}
    assert {row["parent"] for row in found["trials"]} <= known
    assert {row["idea"] for row in found["trials"]} - {None} <= {idea["id"] for idea in found["ideas"]}
    assert Counter(row["kind"] for row in found["trials"])["original"] == 1
    assert {"written", "swept", "repaired"} <= {row["kind"] for row in found["trials"]}


def test_a_build_that_was_sent_back_is_none_that_waits(capsys: pytest.CaptureFixture[str]) -> None:
    seen = tried(passed(2.0))
    trial = Trial("a", 9, 0, seen.run.reference.id, "# spills")
    poor = tree.PoorBuild(trial.source_id, Evaluation(Status.POOR_BUILD, "255 registers and spills"))
    for record in (trial, poor):
        seen.run.record(record)
    found = facts(seen)
    assert [(row["status"], row["why"]) for row in found["trials"][-1:]] == [("poor_build", "255 registers and spills")]
    assert found["progress"]["waiting"] == []
    assert texts(seen.run, lambda names: ())["logs"][trial.source_id] == "255 registers and spills"
    Console(width=100).print(branches(seen.run))
    assert "1 poor build" in capsys.readouterr().out


def test_a_finished_run_is_headed_by_its_second_judgement(recorded: Path) -> None:
    found, run = facts(see(recorded)), see(recorded).run
    winner = tree.winner(run)
    again = run.confirmations[winner.source_id]
    assert (found["state"], found["headline"]["sure"]) == ("finished", "confirmed")
    assert found["headline"]["trial"] == found["lineage"][-1] == winner.id
    assert found["headline"]["speedup"] == again.speedup
    assert {row["title"] for row in found["headline"]["versus"]} == {"eager PyTorch", "torch.compile"}
    assert [row["holds"] for row in found["sheet"]].count(True) >= 3
    assert any(row["holds"] is False and "NOT verified" in row["text"] for row in found["sheet"])


def test_an_unfinished_run_is_headed_by_its_first_judgements(tmp_path: Path) -> None:
    found = facts(see(write(tmp_path / "run", 30, finished=False)))
    assert (found["state"], found["headline"]["sure"], found["sheet"]) == ("stopped", "first", [])
    assert any("resume" in row["command"] for row in found["commands"])


def test_a_run_in_which_nothing_is_faster_says_so() -> None:
    found = facts(tried(passed(0.5), failed_build()))
    assert (found["headline"]["sure"], found["headline"]["speedup"]) == ("none", 1.0)


def failed_build() -> object:
    from kernel_agent.run.types import Status

    return failed(Status.BUILD_ERROR)


def test_a_failure_says_why_by_its_first_diagnostic_else_its_log() -> None:
    from kernel_agent.run.types import Status

    rows = facts(tried(failed(Status.BUILD_ERROR), failed(Status.TIMEOUT), passed(2.0)))["trials"]
    assert [row.get("why") for row in rows] == [None, "cuda.cu:3: error: no [such] type", "scripted timeout", None]


def test_a_trial_without_a_verdict_waits() -> None:
    seen = tried(passed(2.0))
    seen.run.record(Trial("a", 9, 0, seen.run.reference.id, "# new"))
    found = facts(replace(seen, state="running"))
    assert [row["status"] for row in found["trials"]] == ["passed", "passed", "waiting"]
    assert found["progress"]["waiting"] == [found["trials"][-1]["id"]]


def test_what_is_left_is_told_by_the_share_that_is_judged() -> None:
    seen = replace(tried(passed(2.0), passed(1.5), passed(1.2)), state="running", history=History(seconds=90.0))
    progress = facts(seen)["progress"]
    assert (progress["expected"], progress["share"]) == (4 * 3 * 3, 3 / 36)
    assert progress["left_s"] == pytest.approx(90.0 * 11)


def test_time_since_the_start_leaves_out_the_nights_of_a_stopped_run() -> None:
    history = History({("trial", "a"): 100.0, ("judgement", "a"): 160.0, ("trial", "b"): 160.0 + PAUSE_S * 9})
    assert list(history.since_start().values()) == [0.0, 60.0, 60.0]


def test_money_is_told_as_spent_when_a_verdict_came() -> None:
    trial = Trial("a", 0, 0, None, "# 1")
    charge = Charge("code", "m", 10, 5, 0.5, 1.0)
    recorded = {("trial", trial.id): 10.0, ("judgement", trial.source_id): 20.0}
    clock = Clock(History(recorded, (Paid(charge, 5.0), Paid(charge, 15.0), Paid(charge, 25.0))))
    assert clock.moments(trial)["spent_usd"] == 1.0
    assert clock.moments(trial)["spent_tokens"] == 30
    assert "spent_usd" not in Clock(History(recorded, (Paid(charge, None),))).moments(trial)


def test_charges_of_an_earlier_version_have_no_moment(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "run") as journal:
        journal.begin(PROBLEM, small_settings())
        journal.describe(DESCRIPTION)
        journal._rows.execute(
            "CREATE TABLE charges (number INTEGER PRIMARY KEY, stage TEXT NOT NULL, model TEXT NOT NULL, "
            "prompt_tokens INTEGER NOT NULL, reply_tokens INTEGER NOT NULL, dollars REAL, seconds REAL NOT NULL)"
        )
        journal.charge(Charge("code", "m", 10, 5, 0.5, 1.0))
    assert [paid.at for paid in see(tmp_path / "run").history.paid] == [None]


def test_a_new_record_changes_the_stamp_of_a_directory(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "run") as journal:
        journal.begin(PROBLEM, small_settings())
        journal.describe(DESCRIPTION)
        before = stamp(tmp_path / "run")
        assert stamp(tmp_path / "run") == before
        journal.charge(Charge("code", "m", 10, 5, 0.5, 1.0))
        assert stamp(tmp_path / "run") != before


def test_texts_hold_what_was_read_and_clean_it() -> None:
    seen = tried(passed(2.0))
    trial = Trial("a", 5, 0, seen.run.reference.id, "x = 1  # \u202e hidden \x1b[31m red\n")
    seen.run.record(trial)
    passage = Passage("p1", "page", "Tiles", "Why", "words", "docs/tiles.md")
    found = texts(seen.run, lambda names: tuple(one for one in (passage,) if one.id in names))
    assert found["sources"][trial.source_id] == "x = 1  #  hidden  red\n"
    assert found["passages"] == {"p1": {"title": "Tiles", "heading": "Why", "source": "docs/tiles.md", "text": "words"}}
    assert found["ideas"]["a"]["passages"] == ["p1", "gone"]
    assert found["problem"] == PROBLEM.source


def test_the_texts_of_one_trial_are_its_own_and_its_parent_s(recorded: Path) -> None:
    run = see(recorded).run
    trial = tree.winner(run)
    found = one(run, trial, lambda names: ())
    assert trial.parent is not None
    assert set(found["sources"]) == {run.reference.source_id, trial.source_id, run.trials[trial.parent].source_id}
    assert list(found["ideas"]) == [trial.idea]
    assert found["profiles"][trial.source_id]["hot_spots"][0]["line"] == 12


def test_the_row_of_a_list_is_part_of_the_facts(recorded: Path) -> None:
    seen = see(recorded)
    row, whole = summary(seen), facts(seen)
    assert row["progress"] == whole["progress"]
    assert row["headline"].items() <= whole["headline"].items()
    assert seen.run.problem.source == MODEL
