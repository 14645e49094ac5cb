"""A run to draw."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.page_runs import write


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of 60 trials."""
    return write(tmp_path_factory.mktemp("page") / "recorded", 60)
