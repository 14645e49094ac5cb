"""What is known of suites as one JSON value, and their page as a file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_agent.errors import UsageError
from kernel_agent.run.lock import holder
from kernel_agent.suite.facts import comparison, facts, row_facts
from kernel_agent.suite.report import whole, written
from kernel_agent.suite.store import Store
from tests.support.drawn_pages import unpacked
from tests.support.page_suites import write_suite
from tests.support.suite_rows import kernel, original


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_suite(tmp_path_factory.mktemp("suites") / "first")


def test_a_suite_s_facts_are_json_with_a_row_for_each_problem(suite: Path) -> None:
    found = json.loads(json.dumps(facts(suite), allow_nan=False))
    assert [row["status"] for row in found["rows"][:4]] == ["improved", "failed", "not_covered", "improved"]
    assert found["state"] == "finished" and found["progress"]["ended"] == found["progress"]["problems"] == 8
    first = found["rows"][0]
    assert first["speedup_interval"][0] < first["speedup"] < first["speedup_interval"][1]
    assert all((suite / row["directory"]).is_dir() == (row["evaluations"] > 0) for row in found["rows"])
    assert found["spent"]["limits"] == {"usd": 20.0, "tokens": None, "minutes": 90.0}


def test_a_suite_under_way_says_when_it_is_done_and_a_stopped_one_does_not(tmp_path: Path) -> None:
    directory = write_suite(tmp_path / "s", ended=False)
    stopped = facts(directory)
    assert (stopped["state"], stopped["progress"]["left_s"]) == ("stopped", None)
    assert any("suite resume" in one["command"] for one in stopped["commands"])
    with Store.open(directory):
        going = facts(directory)
        assert holder(directory) is not None
    assert going["state"] == "running" and going["progress"]["under_way"] == 1
    # A problem takes 61 s in the mean; one is under way for 60 s, and one waits for the other of two places.
    assert going["progress"]["left_s"] == pytest.approx(61.0)


def test_an_original_has_ratios_and_no_interval() -> None:
    row = row_facts(original("a", 900.0))
    assert (row["speedup"], row["speedup_interval"]) == (1.0, None)
    row = row_facts(replace(kernel("level1/a", 2.0, 1.2), dollars=0.5))
    assert (row["usd"], row["level"], row["versus_compile_interval"]) == (0.5, "level1", [1.2 * 0.99, 1.2 * 1.01])
    assert "dollars" not in row


def test_a_comparison_tells_the_change_of_each_problem_and_whether_it_is_noise() -> None:
    found = comparison([kernel("a", 2.0), original("b")], [kernel("a", 3.0), kernel("b", 2.0)])
    assert found["changes"] == {"a": {"change": "faster", "ratio": 1.5}, "b": {"change": "gained", "ratio": 2.0}}
    assert any("sign test" in row for row in found["account"])


def test_a_problem_leads_to_the_page_of_its_run_where_there_is_one(suite: Path, tmp_path: Path) -> None:
    page = suite / "problems" / "level1" / "1_ReLU" / "report.html"
    page.write_text("a page")
    text = written([suite, write_suite(tmp_path / "second", 9, seed=2)], tmp_path / "both.html").read_text()
    assert "</html>" in text
    first, second = unpacked(text, "facts")["suites"]
    assert ((tmp_path / first["rows"][0]["page"]).read_text(), first["rows"][1]["page"]) == ("a page", None)
    assert [row["page"] for row in second["rows"]] == [None] * 9


def test_what_is_no_suite_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no suite in"):
        whole([tmp_path])
