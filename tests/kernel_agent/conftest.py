"""A place to run commands in."""

from pathlib import Path

import pytest

from kernel_agent.settings import rows
from tests.support.scripted_run import MODEL, ROOT


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
