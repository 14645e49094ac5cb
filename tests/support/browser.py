"""A real Chromium, driven by Playwright; where one of the two is missing, why in one sentence."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")


def missing() -> str | None:
    """Why there is no browser to test with; None where there is one."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "browser tests need Playwright: pip install -r requirements-dev.txt"
    return None if _chromium() else "browser tests need Chromium: apt-get install chromium"


def _chromium() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def chromium() -> Iterator[Any]:
    """The browser, until the block ends."""
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=_chromium(), args=arguments)
        try:
            yield browser
        finally:
            browser.close()


class Opened:
    """A page that is open: `faults` are its errors and what its console says of errors."""

    def __init__(self, browser: Any, address: str | Path, width: int = 1280, theme: str = "light") -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
        self.page = self.context.new_page()
        self.faults: list[str] = []
        self.page.on("pageerror", lambda fault: self.faults.append(str(fault)))
        self.page.on("console", lambda said: self.faults.append(said.text) if said.type == "error" else None)
        self.page.goto(address.absolute().as_uri() if isinstance(address, Path) else address)
        self.page.wait_for_selector("html[data-drawn=yes]")

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()
