"""The rows of a suite that was played: what its directories hold, whole, damaged, older and under way."""

from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_agent.run.journal import FILE, Journal, read
from kernel_agent.run.tree import winner
from kernel_agent.suite.plan import Plan
from kernel_agent.suite.rows import RESULTS, rows_of
from kernel_agent.suite.store import Store, Suite
from kernel_agent.suite.store import read as read_suite
from kernel_agent.suite.table import markdown, table
from kernel_agent.suite.types import Outcome, Row, State, SuiteProblem
from tests.support.scripted_run import PROBLEM, small_settings
from tests.support.suites import GELU, RELU, played


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("kept") / "suite"
    asyncio.run(played(directory))
    return directory


@pytest.fixture
def directory(kept: Path, tmp_path: Path) -> Path:
    """A copy to break."""
    shutil.copytree(kept, tmp_path / "suite")
    return tmp_path / "suite"


def rows(directory: Path) -> tuple[Row, ...]:
    return rows_of(read_suite(directory))


def test_a_row_has_the_numbers_of_the_winners_second_judgement(directory: Path) -> None:
    relu, sort, gelu = rows(directory)
    run = read(RELU.directory(directory))
    again = run.confirmations[winner(run).source_id]
    assert again.timing and again.compiled
    assert (relu.status, relu.correct, relu.kernel_us) == ("improved", True, again.timing.median_us)
    assert (relu.speedup, relu.versus_compile) == (again.against("eager"), again.compiled.speedup)
    assert (relu.eager_us, relu.compile_us, relu.compile_mode, relu.limit_us) == (100.0, 80.0, "compile", 3.2)
    assert relu.reached and relu.reached.low < relu.reached.median < relu.reached.high
    assert relu.reached.median == run.description.reached(again.timing.median_us)
    assert relu.evaluations == len(run.evaluations) + len(run.confirmations) > 2
    assert (relu.device, relu.target, relu.granted_minutes, relu.tokens) == ("scripted", "cpu", 3.0, 0)
    assert (sort.status, sort.correct, sort.evaluations) == ("original_delivered", False, 0)
    assert sort.reason and "aten.sort" in sort.reason
    assert (gelu.compile_us, gelu.versus_compile, gelu.notes) == (None, None, ("a note",))


def test_the_journal_says_what_results_of_an_earlier_version_do_not(directory: Path) -> None:
    before = rows(directory)
    file = RELU.directory(directory) / RESULTS
    file.write_text(json.dumps({"status": "improved"}))
    (GELU.directory(directory) / RESULTS).unlink()
    assert [replace(row, minutes=0.0) for row in rows(directory)] == [replace(row, minutes=0.0) for row in before]
    file.write_text("{" * 100_000)
    assert rows(directory)[0].kernel_us == before[0].kernel_us


def test_a_kernel_that_lies_there_no_more_is_none(directory: Path) -> None:
    (RELU.directory(directory) / "best_kernel.py").unlink()
    row = rows(directory)[0]
    assert (row.status, row.correct, row.speedup) == ("failed", False, None)
    assert row.reason and row.reason.endswith("best_kernel.py is missing") and row.eager_us == 100.0


def test_a_damaged_journal_is_the_reason_of_its_row_alone(directory: Path) -> None:
    place = RELU.directory(directory)
    (place / RESULTS).unlink()
    (place / FILE).write_bytes(b"no journal" * 1000)
    relu, _, gelu = rows(directory)
    assert relu.status == "failed" and relu.reason and "damaged" in relu.reason and gelu.correct
    shutil.rmtree(place)
    assert "There is no folder" in str(rows(directory)[0].reason)


def test_what_an_original_delivers_counts_as_one(directory: Path) -> None:
    file = RELU.directory(directory) / RESULTS
    found = json.loads(file.read_text())
    found |= {"status": "no_improvement", "speedup": 1.0, "speedup_interval": [1.0, 1.0], "authorship": None}
    file.write_text(json.dumps(found))
    row = rows(directory)[0]
    assert (row.status, row.correct, row.kernel_us, row.reached) == ("no_improvement", False, None, None)
    assert row.speedup and (row.speedup.low, row.speedup.median, row.speedup.high) == (1.0, 1.0, 1.0)


def test_a_problem_under_way_shows_what_it_has_cost(tmp_path: Path) -> None:
    waiting, undescribed = SuiteProblem("a", ""), SuiteProblem("b", "")
    with Store.create(tmp_path, Plan("x", {}), (waiting, undescribed)) as store:
        store.append(Outcome("b", State.RUNNING, minutes=2.0))
        with Journal.create(undescribed.directory(tmp_path)) as journal:
            journal.begin(PROBLEM, small_settings())
            first, second = rows(tmp_path)
    assert (first.status, second.status, second.reason, second.granted_minutes) == ("waiting", "running", None, 2.0)


def test_a_failure_after_a_delivery_keeps_the_kernel_and_says_why(directory: Path) -> None:
    with Store.open(directory) as store:
        store.append(Outcome(RELU.id, State.FAILED, "the server has gone", "ServerError"))
    row = rows(directory)[0]
    assert (row.status, row.correct, row.reason) == ("improved", True, "the server has gone")


def test_a_table_of_250_problems_is_made_from_their_files(kept: Path, tmp_path: Path) -> None:
    many = tuple(SuiteProblem(f"level{n % 3}/{n}_ReLU", RELU.code) for n in range(250))
    for problem in many:
        shutil.copytree(RELU.directory(kept), problem.directory(tmp_path))
    outcomes = {problem.id: Outcome(problem.id, State.DONE) for problem in many}
    found = table("many", rows_of(Suite(tmp_path, Plan("x", {}), many, outcomes, ())))
    page = markdown(found)
    assert found.total.correct == 250 and page.count("| improved |") >= 250
