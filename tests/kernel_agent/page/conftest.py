"""Runs to draw, and a browser to draw them in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import chromium, missing
from tests.support.page_runs import write


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if why := missing():
        pytest.skip(why)
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of 60 trials."""
    return write(tmp_path_factory.mktemp("page") / "recorded", 60)
