"""Where index and experience stand when no folder is named."""

import stat
from pathlib import Path

import pytest

from rag import LibraryError, folders
from rag.experience.ledger import Ledger, default_ledger
from rag.index import build


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "temporary"
    made.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(made))
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("XDG_DATA_HOME", "")
    return made


def test_what_cannot_be_written_is_passed_over_for_a_folder_of_the_users_own(
    temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    found, why = folders.cache()
    assert found.parent == temporary and stat.S_IMODE(found.stat().st_mode) == 0o700
    assert why == f"{tmp_path}/file/.cache cannot be written"
    assert build.default_cache().is_relative_to(found)
    found.chmod(0o777)
    with pytest.raises(
        LibraryError, match=r"cannot be written, and .* in the hands of other users: set XDG_CACHE_HOME"
    ):
        folders.cache()


@pytest.mark.parametrize("home", ["relative", "."])
def test_without_a_home_the_index_goes_elsewhere_and_experience_is_refused(
    temporary: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    monkeypatch.setenv("HOME", home)
    assert folders.cache()[0].parent == temporary
    with pytest.raises(LibraryError, match="no home directory: set HOME or XDG_DATA_HOME"):
        Ledger(default_ledger()).read()


def test_a_home_of_any_name_is_used(temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "Jürgen $Doe's"
    monkeypatch.setenv("HOME", str(home))
    assert folders.cache() == (home / ".cache", None) and not home.exists()
    assert default_ledger() == home / ".local" / "share" / "kernel_agent" / "experience.sqlite"


def test_a_folder_that_takes_less_than_its_permissions_promise_cannot_be_used() -> None:
    assert not folders.can_be_written(Path("/proc/here/.cache"))


def test_what_may_be_written_is_told_without_writing(tmp_path: Path) -> None:
    assert folders.can_be_written(tmp_path / "a" / "b")
    (tmp_path / "file").write_text("")
    assert folders.can_be_written(tmp_path / "file") and not folders.can_be_written(tmp_path / "file" / "b")
    assert not folders.can_be_written(tmp_path / ("x" * 300) / "b")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
