"""A suite on disk: what is recorded is there, whoever reads it, and two processes do not write it at once."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from kernel_agent.errors import UsageError
from kernel_agent.run.budget import Limits
from kernel_agent.suite.plan import Grant
from kernel_agent.suite.store import Store, begun, read
from kernel_agent.suite.types import Outcome, State, SuiteProblem
from tests.support.scripted_suite import plan, problems


def test_what_is_recorded_is_read_back_while_it_is_written(tmp_path: Path) -> None:
    shaped = SuiteProblem("shaped", "x\n", shapes=[[[1, 2], [3]]], notes=("degenerate",))  # type: ignore[arg-type]
    with Store.create(tmp_path / "s", plan(Limits(1.0, 2, 3.0), even=True), (*problems("a/b"), shaped)) as store:
        store.append(Grant("a/b", 1.0, rounds=1), Outcome("a/b", State.RUNNING, minutes=1.0))
        store.append(Outcome("a/b", State.FAILED, "it is bad", "ProblemError"))
        store.lasted(12.5)
        suite = read(tmp_path / "s")
    assert suite.plan == plan(Limits(1.0, 2, 3.0), even=True) and suite.seconds == 12.5
    assert suite.problems[0] == problems("a/b")[0] and [*suite.problems[1].shapes[0]] == [[1, 2], [3]]
    assert suite.outcome(suite.problems[0]) == Outcome("a/b", State.FAILED, "it is bad", "ProblemError")
    assert suite.outcome(shaped) == Outcome("shaped", State.WAITING)
    assert suite.granted("a/b") == (Grant("a/b", 1.0, rounds=1),)


def test_two_suites_in_one_directory_are_one_sentence(tmp_path: Path) -> None:
    held = pytest.raises(UsageError, match=r"is in use by another process: wait for it")
    with Store.create(tmp_path / "s", plan(), problems("a")), held:
        Store.open(tmp_path / "s")
    with pytest.raises(UsageError, match="holds a suite already"):
        Store.create(tmp_path / "s", plan(), problems("a"))
    Store.open(tmp_path / "s").close()


def test_what_is_no_suite_says_so_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"There is no suite in .*: suite.sqlite is missing"):
        read(tmp_path)
    (tmp_path / "suite.sqlite").write_bytes(b"no database at all, but long enough to be taken for one" * 10)
    with pytest.raises(UsageError, match="is damaged, or keeps no suite"):
        read(tmp_path)
    sqlite3.connect(tmp_path / "empty.sqlite").close()
    (tmp_path / "e").mkdir()
    sqlite3.connect(tmp_path / "e" / "suite.sqlite").close()
    assert not begun(tmp_path / "e")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "journal.sqlite").touch()
    with pytest.raises(UsageError, match="holds a run"):
        Store.create(tmp_path / "run", plan(), problems("a"))


def test_a_directory_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written"):
        Store.create(tmp_path / "file" / "s", plan(), problems("a"))


def test_records_are_written_all_or_none(tmp_path: Path) -> None:
    with Store.create(tmp_path / "s", plan(), problems("a")) as store:
        with pytest.raises(StopIteration):
            store.append(Outcome("a", State.DONE), "no record")  # type: ignore[arg-type]
        assert not store.load().outcomes
