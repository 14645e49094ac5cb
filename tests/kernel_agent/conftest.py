"""A place to run commands in, and a browser to draw pages in."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernel_agent.settings import rows
from tests.support.browser import chromium, missing
from tests.support.scripted_run import MODEL, ROOT


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if why := missing():
        pytest.skip(why)
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def there(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a problem in it, which commands run in, and an environment without keys."""
    for row in rows():
        monkeypatch.delenv(row.variable, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "relu.py").write_text(MODEL)
    return tmp_path
