"""The live page in a real Chromium, beside runs that go on, are killed, resumed and stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernel_agent.page.seen import see
from kernel_agent.suite.store import Store
from tests.support.browser import Opened
from tests.support.page_runs import write
from tests.support.page_suites import write_suite
from tests.support.watching import agent_command, printed_until, scripted_search, scripted_suite, watching

pytestmark = pytest.mark.browser
MORE = "count => document.querySelectorAll('.tree .node').length > count"
STATE = "state => document.querySelector('#top .dot')?.classList.contains(state)"


def judged(page: Any) -> int:
    return int(page.locator(".tree .node:not(.waiting)").count())


@pytest.mark.long
def test_a_page_advances_survives_a_kill_and_a_resume_and_stops_a_run(browser: Any, tmp_path: Path) -> None:
    with scripted_search(tmp_path) as run:
        printed_until(run, "passed")
        with watching(tmp_path / "kept") as address, Opened(browser, address) as opened:
            page = opened.page
            page.wait_for_selector(".tree .node")
            page.wait_for_function(MORE, arg=page.locator(".tree .node").count())
            run.kill()
            page.wait_for_function(STATE, arg="stopped")
            assert "resume" in page.locator("#main").inner_text()
            before = judged(page)
            with agent_command("resume", "kept", where=tmp_path) as again:
                page.wait_for_function(STATE, arg="running")
                printed_until(again, "passed")
                page.wait_for_function(
                    "count => document.querySelectorAll('.tree .node:not(.waiting)').length > count", arg=before
                )
                page.locator("#stop").click()
                page.locator("#stop", has_text="sure").click()
                assert again.wait(60) == 130
            page.wait_for_function(STATE, arg="stopped")
            assert opened.faults == []
    assert judged_in(tmp_path / "kept") > 0


@pytest.mark.long
def test_a_suite_is_followed_survives_a_kill_and_a_resume_and_is_stopped(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    with watching(tmp_path / "runs") as address, Opened(browser, address) as opened:
        page, card = opened.page, opened.page.locator('article[data-suite="many"]')
        with scripted_suite(tmp_path) as suite:
            card.locator(".under a").first.wait_for()
            assert "of 30 minutes" in card.inner_text(), "a bar for its budget"
            card.locator("> .what a").click()
            page.wait_for_function(STATE, arg="running")
            suite.kill()
        page.wait_for_function(STATE, arg="stopped")
        assert "suite resume" in page.locator("#main").inner_text()
        with agent_command("suite", "resume", "runs/many", where=tmp_path) as again:
            page.wait_for_function(STATE, arg="running")
            page.locator("#problems tbody tr", has_text="running").locator("a").first.click()
            page.locator(".tree .node").first.wait_for()
            page.get_by_role("link", name="its suite").click()
            page.wait_for_function(STATE, arg="running")
            page.locator("#stop").click()
            page.locator("#stop", has_text="sure").click()
            assert again.wait(60) == 130
            page.wait_for_function(STATE, arg="stopped")
        assert opened.faults == []


def judged_in(directory: Path) -> int:
    return len(see(directory).run.evaluations)


def test_the_list_leads_to_a_run_whose_trial_opens(browser: Any, tmp_path: Path) -> None:
    write(tmp_path / "runs" / "one", 12)
    with watching(tmp_path / "runs") as address, Opened(browser, address) as opened:
        opened.page.locator("article.run a").click()
        opened.page.locator(".tree .node.winner").click()
        opened.page.locator("#detail .code tr").first.wait_for()
        assert opened.page.locator(".budget").count() == 0, "a finished run has no bars"
        assert opened.faults == []


def test_a_run_that_begins_shows_in_the_list_by_itself(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    with watching(tmp_path / "runs") as address, Opened(browser, address) as opened:
        opened.page.locator("#main", has_text="There is no run here yet").wait_for()
        write(tmp_path / "runs" / "new", 5)
        opened.page.locator('article[data-run="new"]').wait_for()
        assert opened.faults == []


def test_a_page_whose_server_is_gone_says_so(browser: Any, tmp_path: Path) -> None:
    write(tmp_path / "runs" / "one", 5)
    with watching(tmp_path / "runs") as address:
        opened = Opened(browser, address)
        opened.page.locator("article.run").wait_for()
        assert opened.page.locator(".lost").is_hidden()
    opened.page.locator(".lost", has_text="is gone").wait_for()
    opened.context.close()


def test_the_list_leads_to_a_suite_whose_table_leads_to_a_run(browser: Any, tmp_path: Path) -> None:
    directory = write_suite(tmp_path / "runs" / "many", 5, ended=False)
    with Store.open(directory), watching(tmp_path / "runs") as address, Opened(browser, address) as opened:
        page = opened.page
        suite = page.locator('article[data-suite="many"]')
        suite.locator(".budget").nth(2).wait_for()
        assert "3 of 5 problems played" in suite.inner_text() and "left" in suite.inner_text()
        suite.locator(".what a").first.click()
        page.locator("#problems tbody tr").first.wait_for()
        assert page.locator("#stop").is_visible()
        page.get_by_label("find a problem").fill("gelu")
        page.locator("#problems tbody a").click()
        page.locator(".tree .node").first.wait_for()
        page.get_by_role("link", name="its suite").click()
        page.locator("#problems tbody tr").first.wait_for()
        assert opened.faults == []


def test_a_suite_that_is_watched_alone_opens_at_once(browser: Any, tmp_path: Path) -> None:
    with watching(write_suite(tmp_path / "many", 4)) as address, Opened(browser, address) as opened:
        opened.page.locator("#problems tbody tr").nth(3).wait_for()
        opened.page.locator("#problems tbody a").first.click()
        opened.page.locator(".tree .node.winner").wait_for()
        assert opened.faults == []
