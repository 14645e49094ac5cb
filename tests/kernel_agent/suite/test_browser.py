"""The page of suites in a real Chromium: what the table shows, and how it sorts and filters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernel_agent.page.render import suites as page_of
from kernel_agent.page.report import written as run_page
from kernel_agent.suite.facts import facts
from kernel_agent.suite.report import written
from tests.support.browser import Opened
from tests.support.hostile import HOSTILE
from tests.support.page_suites import write_suite

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("suites")
    return write_suite(folder / "first", 8, 1), write_suite(folder / "second", 10, 2)


def rows(page: Any) -> list[str]:
    return list(map(str, page.locator("#problems tbody tr td:first-child .title:first-child").all_inner_texts()))


def test_a_suite_is_a_table_that_sorts_and_filters(browser: Any, pair: tuple[Path, Path]) -> None:
    found = facts(pair[0])["rows"]
    with Opened(browser, written([pair[0]], pair[0] / "report.html")) as opened:
        page = opened.page
        assert sorted(rows(page)) == sorted(row["problem"] for row in found)
        assert rows(page)[:3] == ["level1/1_ReLU", "level1/3_LayerNorm", "level1/5_Matmul_Sum_Max"]
        page.get_by_role("button", name="over eager", exact=True).click()
        best = max(found, key=lambda row: row["speedup"] or 0)
        assert rows(page)[0] == best["problem"]
        assert f"{best['speedup']:.2f}×" in page.locator("#problems tbody tr").first.inner_text()
        page.locator('.pick[data-key="outcome improved"]').click()
        assert rows(page) and set(rows(page)) == {row["problem"] for row in found if row["status"] != "improved"}
        page.get_by_role("button", name="all", exact=True).click()
        page.keyboard.press("/")
        page.keyboard.type("degenerate")
        assert set(rows(page)) == {row["problem"] for row in found if row["notes"]}
        assert opened.faults == []


def test_a_name_leads_to_the_page_of_the_problem_s_run(browser: Any, pair: tuple[Path, Path]) -> None:
    run_page(pair[0] / "problems" / "level1" / "1_ReLU", lambda names: ())
    with Opened(browser, written([pair[0]], pair[0] / "report.html")) as opened:
        opened.page.locator("#problems tbody a").first.click()
        opened.page.locator(".tree .node.winner").wait_for()
        assert "problems/level1/1_ReLU/report.html" in opened.page.url and opened.faults == []


def test_suites_side_by_side_tell_what_changed_and_filter_by_it(browser: Any, pair: tuple[Path, Path]) -> None:
    file = written(pair, pair[0].parent / "both.html")
    with Opened(browser, file) as opened:
        page = opened.page
        assert len(rows(page)) == 10 and page.locator(".plot canvas").count() == 1
        heads = page.locator("#problems th").all_inner_texts()
        assert [head.split(" ")[0] for head in heads] == ["problem", "A", "B", "B", "change"]
        page.get_by_role("button", name="B over A").click()
        ratios = [float(t[:-1]) for t in page.locator("#problems td:nth-child(4)").all_inner_texts() if t != "–"]
        assert ratios == sorted(ratios, reverse=True) and len(ratios) == 8
        alone = page.locator('.pick[data-key="change in one alone"]')
        alone.click()
        assert len(rows(page)) == 8
        page.get_by_role("button", name="kernel time").click()
        assert "µs" in page.locator("#problems tbody tr").first.inner_text() and len(rows(page)) == 8
        assert opened.faults == []


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_pages_of_suites_fit(browser: Any, pair: tuple[Path, Path], width: int, theme: str) -> None:
    for places in ([pair[0]], pair):
        with Opened(browser, written(places, pair[0].parent / "fits.html"), width, theme) as opened:
            assert opened.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
            assert opened.faults == []


def hostile(value: Any) -> Any:
    """The same value with every text made hostile."""
    if isinstance(value, dict):
        return {name: hostile(one) for name, one in value.items()}
    if isinstance(value, list):
        return [hostile(one) for one in value]
    return HOSTILE if isinstance(value, str) else value


def test_nothing_of_a_hostile_suite_runs(browser: Any, pair: tuple[Path, Path], tmp_path: Path) -> None:
    bad = hostile(facts(pair[0]))
    for row in bad["rows"]:
        row["page"] = "javascript:window.pwned=1"
    against = {"changes": {HOSTILE: {"change": HOSTILE, "ratio": 1.0}}, "account": [HOSTILE]}
    for found in ({"suites": [bad], "against_first": []}, {"suites": [bad, bad], "against_first": [against]}):
        (tmp_path / "bad.html").write_text(page_of(found))
        with Opened(browser, tmp_path / "bad.html") as opened:
            for link in opened.page.locator("#problems a").all()[:1]:
                link.click()
            assert opened.page.evaluate("window.pwned") is None
            assert opened.page.locator("#main img, #top img, #main script").count() == 0
