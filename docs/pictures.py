"""Make the pictures of README and docs: `python -m docs.pictures`, with Chromium and Playwright.

They are cut out of the page of a recorded run: tests/support/recorded/rms_norm_residual_cpu.sql.gz, a real run by
templates on a CPU. Given a folder, they are written there.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from kernel_agent.page.report import written  # noqa: E402
from tests.support.browser import Opened, chromium, missing  # noqa: E402
from tests.support.recorded_run import restored  # noqa: E402

IMAGES = ROOT / "docs" / "images"
MOST = 200_000
"""Bytes of a picture at most."""
CUTS: Mapping[str, tuple[str, int]] = {
    "tree": ("section[aria-label='The search']", 1240),
    "roofline": ("section[aria-label='Roofline']", 1240),
    "tolerance": ("section[aria-label='Tolerance']", 1240),
    "timing": ("section[aria-label='The best, with their intervals']", 1240),
}
"""What each picture shows, and how wide the page is for it."""
SCREENS: Mapping[str, tuple[int, str, bool]] = {
    "report-desktop-light": (1280, "light", False),
    "report-desktop-dark": (1280, "dark", True),
    "report-phone-light": (390, "light", False),
    "report-phone-dark": (390, "dark", True),
}
"""Screens: width, theme, and whether the winner is open."""


def cut(browser: Any, page: Path, folder: Path) -> None:
    for name, (where, width) in CUTS.items():
        with Opened(browser, page, width) as opened:
            opened.page.locator(where).screenshot(path=folder / f"{name}.png")


def screens(browser: Any, page: Path, folder: Path) -> None:
    for name, (width, theme, is_open) in SCREENS.items():
        with Opened(browser, page, width, theme) as opened:
            if is_open:
                opened.page.locator(".tree .node.winner").click()
                opened.page.locator("#detail .code tr").first.wait_for()
                opened.page.mouse.move(0, 0)
            opened.page.screenshot(path=folder / f"{name}.png")


def main(folder: Path) -> int:
    if why := missing():
        print(why)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, chromium() as browser:
        directory = restored("rms_norm_residual_cpu", Path(place) / "rms_norm_residual")
        page = written(directory, ended=True)
        cut(browser, page, folder)
        screens(browser, page, folder)
    large = [path.name for path in folder.glob("*.png") if path.stat().st_size > MOST]
    print(f"wrote {len(CUTS) + len(SCREENS)} pictures to {folder}", *(f"{name} is large" for name in large), sep="\n")
    return 1 if large else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES))
