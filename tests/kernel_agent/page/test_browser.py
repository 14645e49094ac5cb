"""A run's page in a real Chromium: what is drawn, what opens, what keys do, and that nothing of a run is run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernel_agent.delivery import BEST
from kernel_agent.page.facts import facts
from kernel_agent.page.render import comparison
from kernel_agent.page.render import page as page_of
from kernel_agent.page.report import written
from kernel_agent.page.seen import see
from kernel_agent.page.texts import texts
from kernel_agent.run import tree
from kernel_agent.run.journal import Journal
from kernel_agent.run.regions import KeptRegion, Regions
from kernel_agent.run.types import Problem
from rag import Passage
from tests.support.browser import Opened
from tests.support.hostile import HOSTILE, hostile_run
from tests.support.page_runs import write
from tests.support.scripted_run import DESCRIPTION, MODEL, small_settings

pytestmark = pytest.mark.browser
Open = Callable[..., Opened]


def nothing(names: object) -> tuple[Passage, ...]:
    return ()


@pytest.fixture(scope="module")
def file(recorded: Path) -> Path:
    return written(recorded, nothing)


@pytest.fixture
def opened(browser: Any, file: Path) -> Iterator[Open]:
    """Opens a page, by default that of the recorded run; at the end none may have had a fault."""
    pages: list[Opened] = []

    def open_(address: Path | str = file, width: int = 1280, theme: str = "light") -> Opened:
        pages.append(Opened(browser, address, width, theme))
        return pages[-1]

    yield open_
    for one in pages:
        one.context.close()
    assert [fault for one in pages for fault in one.faults] == []


def winner(recorded: Path) -> str:
    return tree.winner(see(recorded).run).id


def looked_through(page: Any) -> Any:
    """The page, once its end has been in view: what is drawn only near the view is drawn."""
    for name in ("Tolerance", "Speed over the run", "Roofline", "All trials", "To repeat it"):
        page.get_by_role("region", name=name).scroll_into_view_if_needed()
    page.locator("#trials tbody tr").first.wait_for()
    page.locator(".plot canvas").nth(1).wait_for()
    return page


def nodes(page: Any) -> int:
    return int(page.locator(".tree .node").count())


def test_the_tree_has_a_point_for_each_trial_and_marks_the_winner(opened: Open, recorded: Path) -> None:
    page = opened().page
    assert nodes(page) == len(see(recorded).run.trials)
    assert page.locator(".tree .node.winner").get_attribute("data-id") == winner(recorded)
    assert page.locator(".hero strong").inner_text() == f"{facts(see(recorded))['headline']['speedup']:.2f}×"


def test_a_point_opens_its_idea_its_numbers_and_its_code(opened: Open, recorded: Path) -> None:
    page, run = opened().page, see(recorded).run
    page.click(f'.tree [data-id="{winner(recorded)}"]')
    detail = page.locator("#detail")
    idea = run.ideas[tree.winner(run).idea or ""]
    assert idea.title in detail.inner_text() and "of 64 units allowed" in detail.inner_text()
    assert idea.reasoning in detail.inner_text()
    assert page.url.endswith(f"#{winner(recorded)}")
    page.keyboard.press("Escape")
    assert detail.is_hidden()


def test_a_diff_shows_what_changed_and_folds_what_did_not(opened: Open, recorded: Path) -> None:
    run = see(recorded).run
    trial = next(one for one in run.trials.values() if one.tuned)
    page = opened(f"{(recorded / 'report.html').as_uri()}#{trial.id}").page
    added = page.locator("#detail .diff .add")
    added.first.wait_for()
    assert added.all_inner_texts()[-1].split("+", 1)[1].strip() == trial.source.splitlines()[-1]
    folded = page.locator("#detail .fold button").first
    hidden = int(folded.inner_text().split()[0])
    before = page.locator("#detail .diff tr").count()
    folded.click()
    assert page.locator("#detail .diff tr").count() == before + hidden - 1


def test_the_log_of_a_failure_comes_first_and_hot_lines_stand_at_theirs(opened: Open, recorded: Path) -> None:
    run = see(recorded).run
    bad = next(one for one in run.trials.values() if one.idea and run.speedup(one) is None)
    page = opened(f"{(recorded / 'report.html').as_uri()}#{bad.id}").page
    page.locator("#detail pre", has_text="scripted").wait_for()
    page.evaluate(f"location.hash = '{winner(recorded)}'")
    page.locator("#detail .title", has_text=tree.title(run, run.trials[winner(recorded)])).wait_for()
    page.get_by_role("button", name="Source", exact=True).click()
    hot = page.locator("#detail .source tr", has_text="41 %")
    assert hot.locator(".n").inner_text() == "12"
    page.get_by_role("button", name="Profile").click()
    assert "spills registers" in page.locator("#detail .code").inner_text()


def test_filters_pick_by_outcome_and_by_words(opened: Open, recorded: Path) -> None:
    page = looked_through(opened().page)
    rows = page.locator("#trials tbody tr")
    every = rows.count()
    page.click('.pick[data-kind="faster"]')
    faster = page.locator(".tree .node.f-faster")
    assert page.locator(".tree .node.dim").count() == faster.count() > 0
    assert rows.count() < every
    page.get_by_role("button", name="all", exact=True).click()
    assert page.locator(".tree .node.dim").count() == 0
    page.keyboard.press("/")
    page.keyboard.type("vectorise")
    assert rows.count() == page.locator(".tree .node:not(.dim)").count() < every


def test_a_table_sorts_by_its_heads(opened: Open) -> None:
    page = looked_through(opened().page)
    times = page.locator("#trials tbody tr td:nth-child(3)")
    assert times.first.inner_text().startswith(page.locator(".hero strong").inner_text())
    page.locator("#trials th button", has_text="speed-up").click()
    assert page.locator("#trials th[aria-sort=ascending]").inner_text().startswith("speed-up")
    assert not times.first.inner_text().startswith(page.locator(".hero strong").inner_text())


def test_keys_walk_the_tree_and_open_a_trial(opened: Open, recorded: Path) -> None:
    page, run = opened().page, see(recorded).run
    page.locator('.tree [tabindex="0"]').focus()
    focused = "document.activeElement.dataset.id"
    assert page.evaluate(focused) == winner(recorded)
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(focused) == tree.winner(run).parent
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.locator("#detail .title").wait_for()
    page.keyboard.press("Escape")
    assert page.evaluate(focused) is not None


@pytest.mark.parametrize("width", [360, 768, 1280])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_page_fits_every_width_in_both_themes(opened: Open, recorded: Path, width: int, theme: str) -> None:
    page = opened(width=width, theme=theme).page
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert page.evaluate("document.documentElement.dataset.theme") == theme
    page.click(f'.tree [data-id="{winner(recorded)}"]')
    page.locator("#detail .title").wait_for()
    assert (
        page.evaluate("document.querySelector('#detail').scrollWidth - document.querySelector('#detail').clientWidth")
        <= 0
    )


def test_the_theme_button_changes_the_theme_and_draws_again(opened: Open) -> None:
    page = looked_through(opened().page)
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    assert nodes(page) > 0 and page.locator(".plot canvas").count() == 2


def test_curves_run_over_trials_minutes_and_dollars(opened: Open) -> None:
    page = looked_through(opened().page)
    for way in ("minutes", "dollars", "trials"):
        page.get_by_role("group", name="over").get_by_role("button", name=way).click()
        assert page.locator(".plot canvas").count() == 2


def test_a_printed_page_leaves_out_what_one_clicks(opened: Open) -> None:
    page = opened().page
    assert page.locator(".plot canvas").count() == 0, "nobody has looked at the curves yet"
    page.pdf()
    page.emulate_media(media="print")
    assert page.locator("#theme").is_hidden() and page.locator(".tools").first.is_hidden()
    assert page.locator(".tree svg").is_visible() and page.locator(".sheet").is_visible()
    assert page.locator(".plot canvas").count() == 2 and page.locator("#trials tbody tr").count() > 0


def test_a_dark_page_is_printed_light_and_is_dark_again(opened: Open) -> None:
    page = opened(width=794, theme="dark").page
    theme = "document.documentElement.dataset.theme"
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.evaluate(theme) == "light"
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, "no column is cut off"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(theme) == "dark"


def test_nothing_of_a_hostile_run_runs_wherever_it_is_shown(opened: Open, tmp_path: Path) -> None:
    seen = hostile_run(tmp_path / "run")
    passages = (Passage(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE),)
    file = tmp_path / "hostile.html"
    file.write_text(page_of(facts(seen), texts(seen.run, lambda names: passages)))
    shown = opened(file).page
    for trial in seen.run.trials:
        shown.evaluate(f"location.hash = '{trial}'")
        shown.locator(f'.tree [data-id="{trial}"].open').wait_for()
        shown.locator("#detail .code").wait_for()
        for view in shown.locator("#detail .tabs button").all_inner_texts():
            shown.get_by_role("button", name=view, exact=True).click()
    shown.keyboard.press("Escape")
    shown.locator(".tree .node.winner").hover()
    assert HOSTILE.split("<img")[0].split("\u2028")[0] in shown.locator("#tip").inner_text()
    assert shown.evaluate("window.pwned") is None
    assert shown.locator("#main img, #detail img, #main script, #detail script").count() == 0


def test_a_page_of_two_thousand_trials_is_drawn_in_under_two_seconds(opened: Open, tmp_path: Path) -> None:
    file = written(write(tmp_path / "run", 2000), nothing)
    pages = [opened(file).page for _ in range(3)]
    assert min(int(page.evaluate("document.documentElement.dataset.took")) for page in pages) < 2000
    page = pages[0]
    points = "[...document.querySelectorAll('.tree .points')].map(one => one.getAttribute('d').split('M').length - 1)"
    assert nodes(page) + sum(page.evaluate(points)) == 2001
    page.locator(".tree .node.winner").click()
    page.locator("#detail .code tr").first.wait_for()
    assert page.locator(".tree .node.open.winner").count() == 1


def test_a_point_of_a_crowd_is_found_filtered_and_walked_to(opened: Open, tmp_path: Path) -> None:
    page = opened(written(write(tmp_path / "run", 500), nothing)).page
    failed = page.locator('.tree .points[stroke-linecap="square"]').first
    x, y = (float(part) for part in failed.get_attribute("d").split("M")[1].split("h")[0].split())
    page.locator(".tree svg").hover(position={"x": x, "y": y})
    assert any(word in page.locator("#tip").inner_text() for word in ("error", "wrong", "timeout", "suspect", "reject"))
    page.locator(".tree svg").click(position={"x": x, "y": y})
    page.locator("#detail .title").wait_for()
    opened_id = page.evaluate("location.hash.slice(1)")
    assert page.locator(f'.tree .node.open[data-id="{opened_id}"]').count() == 1
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.dataset.id") == opened_id
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.dataset.id") != opened_id
    page.click('.pick[data-kind="faster"]')
    assert page.locator(".tree .points.dim").count() > 0
    page.get_by_role("button", name="all", exact=True).click()
    assert page.locator(".tree .points.dim").count() == 0


def test_a_stopped_run_does_not_say_that_it_delivered(opened: Open, tmp_path: Path) -> None:
    page = opened(written(write(tmp_path / "run", 1, seed=5, finished=False), nothing)).page
    said = page.locator(".hero").inner_text()
    assert "stopped" in said and "delivered" not in said


def test_a_page_of_a_run_that_has_just_begun_says_so(opened: Open, tmp_path: Path) -> None:
    page = opened(written(write(tmp_path / "run", 0, finished=False), nothing)).page
    assert "Nothing was judged" in page.locator(".hero").inner_text()
    assert "No kernel has passed" in page.locator("#main").inner_text()


def test_a_page_says_why_templates_had_nothing_to_try(opened: Open, tmp_path: Path) -> None:
    reason = "the templates have no kernel for any part of this module."
    kept = (KeptRegion("sort", "no template covers aten.sort.default."),)
    with Journal.create(tmp_path / "run") as journal:
        journal.begin(Problem("sorted", MODEL, "cpu"), small_settings())
        journal.describe(replace(DESCRIPTION, regions=Regions(0, kept, reason)))
    (tmp_path / "run" / BEST).write_text(MODEL)
    said = opened(written(tmp_path / "run", nothing)).page.locator(".hero").inner_text()
    assert f"The original is delivered: {reason}" in said and "sort: no template covers" in said


def test_runs_side_by_side_sort_and_filter(opened: Open, recorded: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other", 12, seed=7)
    file = tmp_path / "both.html"
    file.write_text(comparison([facts(see(recorded)), facts(see(other))]))
    page = opened(file).page
    assert page.locator("tbody tr").count() == 2 and page.locator(".plot canvas").count() == 1
    assert "side by side" in page.locator("#main").inner_text()
    page.get_by_label("find a run").fill("other")
    assert page.locator("tbody tr").count() == 1


def test_a_dot_of_the_errors_says_whose_it_is_and_opens_it(opened: Open, recorded: Path) -> None:
    page = looked_through(opened().page)
    picture = page.locator(".spread svg")
    picture.scroll_into_view_if_needed()
    first = picture.locator("path").first.get_attribute("d").split("M")[1].split("h")[0].split()
    picture.hover(position={"x": float(first[0]), "y": float(first[1])})
    assert "units" in page.locator("#tip").inner_text()
    picture.click(position={"x": float(first[0]), "y": float(first[1])})
    page.locator("#detail .title").wait_for()


def test_axes_end_whatever_the_speeds_of_a_run_are(opened: Open, tmp_path: Path) -> None:
    for seed in (305, 306, 307):
        looked_through(opened(written(write(tmp_path / str(seed), 9, seed), nothing)).page)
