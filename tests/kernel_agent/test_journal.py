"""The journal: what goes in comes out, whole, and one process at a time may write."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_agent.errors import UsageError
from kernel_agent.journal import FILE, Journal, read
from kernel_agent.tree import Confirmation, Ideas, Judgement, Run
from kernel_agent.types import Idea, Trial
from tests.scripted_run import DESCRIPTION, PROBLEM, evaluation_of, small_settings


def begun(directory: Path) -> Journal:
    journal = Journal.create(directory)
    journal.begin(PROBLEM, small_settings())
    journal.describe(DESCRIPTION)
    return journal


def fill(journal: Journal) -> Run:
    run = journal.load()
    idea = Idea("i1", 1, run.reference.id, "title", "why", {"block": [1, 2.5, None, "ä"]}, ("p1",))
    other = Idea("i2", 1, run.reference.id, "other", "why")
    trial = Trial("i1", 0, 0, run.reference.id, "# speed: 2")
    later = Trial("i2", 0, 0, run.reference.id, "# verdict: wrong")
    judged = [Judgement(t.source_id, evaluation_of(t.source, "eager")) for t in (trial, later)]
    confirmed = Confirmation(trial.source_id, evaluation_of(trial.source, "eager", "compile"))
    deeper = Ideas(2, (Idea("i3", 2, trial.id, "deeper", ""),))
    for record in (Ideas(1, (idea, other)), trial, later, *judged, deeper, confirmed):
        journal.append(record)
        run.record(record)
    return run


def test_a_run_is_read_back_equal(tmp_path: Path) -> None:
    with begun(tmp_path) as journal:
        run = fill(journal)
        assert journal.load() == run
    with Journal.open(tmp_path) as journal:
        assert journal.load() == run == read(tmp_path)
        assert journal.problem == PROBLEM and journal.described


def test_a_record_is_written_once(tmp_path: Path) -> None:
    with begun(tmp_path) as journal:
        trial = next(iter(fill(journal).trials.values()))
        journal.append(trial)
        with pytest.raises(sqlite3.IntegrityError):
            journal.append(trial)


def test_a_directory_in_use_is_refused_while_its_holder_lives_and_only_then(tmp_path: Path) -> None:
    begun(tmp_path).close()
    holder = f"""
import sys; from pathlib import Path; from kernel_agent.journal import Journal
journal = Journal.open(Path({str(tmp_path)!r})); print("held", flush=True); sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout and process.stdout.readline() == "held\n"
        with pytest.raises(UsageError, match="in use by another process"):
            Journal.open(tmp_path)
        assert read(tmp_path).problem == PROBLEM
        process.kill()
    Journal.open(tmp_path).close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match=r"cannot be written \(Permission denied\)"):
        Journal.create(tmp_path / "run")


def test_a_file_in_the_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        Journal.create(tmp_path / "run")


def test_a_run_is_not_begun_over_another(tmp_path: Path) -> None:
    begun(tmp_path).close()
    with pytest.raises(UsageError, match="holds a run already"):
        Journal.create(tmp_path)


def test_a_run_killed_before_it_began_gives_its_directory_back(tmp_path: Path) -> None:
    Journal.create(tmp_path).close()
    with pytest.raises(UsageError, match=r"There is no run|start a new run"):
        Journal.open(tmp_path)
    begun(tmp_path).close()


def test_a_directory_without_a_run_and_a_broken_journal_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no run"):
        Journal.open(tmp_path)
    (tmp_path / FILE).write_text("this is no database, but it is long enough to be looked at" * 20)
    with pytest.raises(UsageError, match="not a journal"):
        read(tmp_path)
    with pytest.raises(UsageError, match="not a journal"):
        Journal.open(tmp_path)


def test_a_journal_of_another_format_is_refused(tmp_path: Path) -> None:
    begun(tmp_path).close()
    rows = sqlite3.connect(tmp_path / FILE)
    with rows:
        rows.execute("UPDATE meta SET value = '99' WHERE name = 'format'")
    rows.close()
    with pytest.raises(UsageError, match="format 99"):
        Journal.open(tmp_path)


def test_a_run_without_a_description_cannot_be_shown_but_resumed(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path)
    journal.begin(PROBLEM, small_settings())
    journal.close()
    with pytest.raises(UsageError, match="before its problem was described"):
        read(tmp_path)
    with Journal.open(tmp_path) as journal:
        assert not journal.described


def test_a_call_is_kept_by_its_key_and_a_second_reply_replaces_the_first(tmp_path: Path) -> None:
    with begun(tmp_path) as journal:
        assert journal.call("k") is None
        journal.record_call("k", json.dumps({"q": 1}), "reply", {"tokens": 3})
        journal.record_call("k", json.dumps({"q": 1}), "better", {"tokens": 3})
        assert journal.call("k") == "better"


def test_no_key_reaches_the_disk(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path)
    journal.begin(PROBLEM, small_settings(openai_api_key="sk-secret"))
    journal.close()
    assert not any(b"sk-secret" in path.read_bytes() for path in tmp_path.iterdir())
