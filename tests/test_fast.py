"""Which tests `make test-fast` runs, and that they start nothing."""

from pathlib import Path

import pytest

from tests.support.fast import STARTERS, Guard, is_fast

FILE = """
import subprocess, pytest
KEPT = [subprocess.PIPE]

def helper():
    return KEPT

@pytest.fixture
def started():
    return helper()

def test_pure(): assert len("x") == 1
def test_by_itself(): subprocess.run(["true"])
def test_by_a_helper(): helper()
def test_by_a_fixture(started): pass
@pytest.mark.usefixtures("started")
def test_by_a_fixture_s_name(): pass
"""


def test_a_test_is_fast_unless_it_reaches_a_starter(tmp_path: Path) -> None:
    assert "subprocess" in STARTERS
    (path := tmp_path / "test_some.py").write_text(FILE)
    names = ["test_by_itself", "test_by_a_helper", "test_by_a_fixture", "test_by_a_fixture_s_name"]
    assert is_fast(path, "test_pure") and not any(is_fast(path, name) for name in names)


def test_a_fast_test_that_starts_a_process_fails() -> None:
    guard = Guard()
    guard.refuse("subprocess.Popen", ())
    guard.watches = True
    guard.refuse("open", ())
    with pytest.raises(pytest.fail.Exception, match=r"it causes os\.fork: name what starts it"):
        guard.refuse("os.fork", ())


def test_the_guard_watches_the_tests_that_are_marked(request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("fast")
    assert [one.watches for one in request.config.pluginmanager.get_plugins() if isinstance(one, Guard)] == [True]
