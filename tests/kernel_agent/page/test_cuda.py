"""The page of a run on CUDA, drawn without a GPU: its profiles are recorded reports of Nsight Compute."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from kernel_agent.page.report import written
from kernel_agent.page.seen import see
from tests.support import cuda_run
from tests.support.browser import Opened
from tests.support.paths import ROOT

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(find_spec("ncu_report") is None, reason="needs the package ncu-report"),
]


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("cuda") / "run"
    command = [sys.executable, "-m", "tests.support.cuda_run", str(directory)]
    subprocess.run(command, cwd=ROOT, check=True)  # the browser's driver holds this process's event loop
    return written(directory)


def test_hot_lines_stand_beside_the_source_and_the_digest_names_the_disease(browser: Any, page_file: Path) -> None:
    trials = [one for one in see(page_file.parent).run.trials.values() if one.idea]
    for trial, name in zip(trials, cuda_run.STEPS, strict=True):
        with Opened(browser, f"{page_file.as_uri()}#{trial.id}") as opened:
            page = opened.page
            page.get_by_role("button", name="Source", exact=True).click()
            rows = page.locator("#detail .source tr")
            hot = [row for row in rows.all() if "%" in row.locator(".heat").inner_text()]
            lines = [int(row.locator(".n").inner_text()) for row in hot]
            assert cuda_run.disease(name).line in lines
            assert any("warps wait: long_scoreboard" in (row.get_attribute("title") or "") for row in hot)
            page.get_by_role("button", name="Profile", exact=True).click()
            told = page.locator("#detail .code").inner_text()
            assert "uncoalesced" in told and "Rules of Nsight Compute" in told and "% of peak" in told
            assert opened.faults == []


def test_a_trial_shows_promise_and_outcome_its_diff_and_what_was_read(browser: Any, page_file: Path) -> None:
    trial = [*see(page_file.parent).run.trials.values()][-1]
    with Opened(browser, f"{page_file.as_uri()}#{trial.id}") as opened:
        detail = opened.page.locator("#detail")
        detail.locator(".diff .add", has_text="out[column << 13 | row] = value").wait_for()
        promise = detail.get_by_label("Prediction against outcome").inner_text()
        assert "1.50×" in promise and "0.44×" in promise
        passage = detail.locator("details").first
        assert "docs/" in passage.locator("summary").inner_text()
        passage.locator("summary").click()
        assert len(passage.locator("pre").inner_text()) > 100
        assert opened.faults == []
