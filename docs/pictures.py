"""Make the pictures of README and docs: `python -m docs.pictures`, with Chromium and Playwright.

They are cut out of the page of a recorded run: tests/support/recorded/rms_norm_residual_cpu.sql.gz, a real run by
templates on a CPU. Given a folder, they are written there.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from kernel_agent.page.report import written  # noqa: E402
from kernel_agent.run.lock import take  # noqa: E402
from tests.support.browser import Opened, chromium, missing  # noqa: E402
from tests.support.recorded_run import restored  # noqa: E402
from tests.support.watching import watching  # noqa: E402

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
    "desktop-light": (1280, "light", False),
    "desktop-dark": (1280, "dark", True),
    "phone-light": (390, "light", False),
    "phone-dark": (390, "dark", True),
}
"""Screens: width, theme, and whether the winner is open."""
HALF = 48
"""Records of the run after which the live page is shown."""


def cut(browser: Any, page: Path, folder: Path) -> None:
    for name, (where, width) in CUTS.items():
        with Opened(browser, page, width) as opened:
            opened.page.add_style_tag(content="main { align-items: start; }")  # no card as tall as its neighbour
            opened.page.locator(where).screenshot(path=folder / f"{name}.png")


def screens(browser: Any, page: Path | str, folder: Path, what: str) -> None:
    for name, (width, theme, is_open) in SCREENS.items():
        with Opened(browser, page, width, theme) as opened:
            opened.page.set_viewport_size({"width": width, "height": 700})
            opened.page.locator(".tree .node").first.wait_for()
            if is_open:
                opened.page.locator(".tree .node.winner").click()
                opened.page.locator("#detail .code tr").first.wait_for()
                opened.page.mouse.move(0, 0)
                opened.page.evaluate("scrollTo({top: 0, behavior: 'instant'})")
            opened.page.screenshot(path=folder / f"{what}-{name}.png")


def live(browser: Any, place: Path, folder: Path) -> None:
    """The live page of the same run, half way: this process holds its directory."""
    directory = restored("rms_norm_residual_cpu", place / "runs" / "rms_norm_residual", HALF)
    with take(directory), watching(directory) as address:
        screens(browser, address, folder, "live")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=IMAGES, help="where they are written")
    folder = parser.parse_args().folder
    if why := missing():
        print(why)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, chromium() as browser:
        directory = restored("rms_norm_residual_cpu", Path(place) / "rms_norm_residual")
        page = written(directory, ended=True)
        cut(browser, page, folder)
        screens(browser, page, folder, "report")
        live(browser, Path(place), folder)
    large = [path.name for path in folder.glob("*.png") if path.stat().st_size > MOST]
    print(
        f"wrote {len(CUTS) + 2 * len(SCREENS)} pictures to {folder}", *(f"{name} is large" for name in large), sep="\n"
    )
    return 1 if large else 0


if __name__ == "__main__":
    sys.exit(main())
