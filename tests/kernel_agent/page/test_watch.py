"""The live page in a real Chromium, beside runs that go on, are killed, resumed and stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernel_agent.page.seen import see
from tests.support.browser import Opened
from tests.support.page_runs import write
from tests.support.watching import agent_command, printed_until, scripted_search, watching

pytestmark = pytest.mark.browser
MORE = "count => document.querySelectorAll('.tree .node').length > count"
STATE = "state => document.querySelector('#top .dot').classList.contains(state)"


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
