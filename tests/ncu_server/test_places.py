"""Where the server writes: folders that cannot be written or built in are passed over, and it is said why."""

import fcntl
import json
import os
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ncu_server import places
from ncu_server.errors import Refusal
from tests.support.edits import edit
from tests.support.measuring import QUICK, ROOT, SCALE_ADD, opened, server_parameters

ODD = [
    "Jane Doe",
    "a$b",
    "it's",
    'q"uote',
    "a#b",
    "a%b",
    "a&b",
    "a;b",
    "a(b",
    "jürgen",
    "a:b",
    "a,b",
    "back\\slash",
    "*",
]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, which is the test's own."""
    made = tmp_path / "temporary"
    made.mkdir()
    monkeypatch.setenv("TMPDIR", str(made))
    return made


@pytest.mark.parametrize("name", ODD)
def test_compilers_work_apart_where_the_path_of_the_cache_is_not_plain(
    temporary: Path, tmp_path: Path, name: str
) -> None:
    cache = tmp_path / name / "cache"
    found = places.chosen(cache)
    assert found.cache == cache and found.why_cache is None
    assert found.building.parent == temporary and places.plain(found.building)
    assert found.why_building is not None and str(cache) in found.why_building


def test_a_plain_path_is_built_in_and_nothing_is_said(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert places.chosen(cache) == places.Places(cache, cache)


def test_a_plain_link_to_a_path_that_is_not_is_no_place_for_compilers(temporary: Path, tmp_path: Path) -> None:
    (tmp_path / "Jane Doe").mkdir()
    (tmp_path / "jane").symlink_to(tmp_path / "Jane Doe")
    assert places.chosen(tmp_path / "jane").building.parent == temporary


@pytest.mark.parametrize("fault", ["a file in its place", "a file above it", "too long a name"])
def test_a_cache_that_cannot_be_made_is_passed_over(temporary: Path, tmp_path: Path, fault: str) -> None:
    (tmp_path / "file").write_text("")
    wanted = {"a file in its place": "file", "a file above it": "file/cache", "too long a name": "x" * 300}[fault]
    found = places.chosen(tmp_path / wanted)
    assert found.cache == found.building and found.cache.parent == temporary
    assert found.why_cache is not None and wanted in found.why_cache
    assert stat.S_IMODE(found.cache.stat().st_mode) == 0o700


def test_a_relative_cache_is_the_same_folder_for_every_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "kept")
    assert places.chosen().cache == tmp_path / "kept" / "kernel_agent" / "ncu_server"


def test_a_path_of_other_bytes_than_utf_8_can_be_told(temporary: Path, tmp_path: Path) -> None:
    found = places.chosen(Path(os.fsdecode(os.fsencode(tmp_path) + b"/j\xfcrgen")))
    assert found.why_building is not None and found.why_building.encode()
    assert found.building.parent == temporary


def test_where_no_folder_can_be_used_each_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(places, "_temporary", lambda: [])
    (tmp_path / "file").write_text("")
    with pytest.raises(Refusal, match=r"NO_ROOM: no folder can .*/file cannot be written \(.*XDG_CACHE_HOME"):
        places.chosen(tmp_path / "file")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user reaches, as pytest's own are not."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can be two users")
    if subprocess.run([*as_user(4711), sys.executable, "-c", ""], capture_output=True, check=False).returncode:
        pytest.skip("an ordinary user can run no Python here")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o1777)
        yield Path(folder)


def as_user(uid: int) -> list[str]:
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]


def asked(uid: int, **environment: str) -> dict[str, str | None]:
    """What a user that the password file does not know is given."""
    code = (
        "import json, dataclasses; from ncu_server import places; "
        "print(json.dumps(dataclasses.asdict(places.chosen()), default=str))"
    )
    done = subprocess.run(
        [*as_user(uid), sys.executable, "-c", code],
        env={"PYTHONPATH": str(ROOT), **environment},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    found: dict[str, str | None] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("home", [None, "", "/", "/nonexistent", "/root"])
def test_a_user_without_a_home_to_write_in_gets_a_folder_of_its_own(shared: Path, home: str | None) -> None:
    found = asked(4711, TMPDIR=str(shared), **({} if home is None else {"HOME": home}))
    assert found["cache"] == found["building"] == f"{shared}/kernel_agent-4711"
    assert found["why_cache"]
    assert Path(found["cache"] or "").stat().st_uid == 4711


def test_two_users_of_one_cache_do_not_share_it(shared: Path) -> None:
    cache = f"{shared}/cache"
    Path(cache).mkdir()
    Path(cache).chmod(0o1777)
    given = {"XDG_CACHE_HOME": cache, "TMPDIR": str(shared)}
    assert asked(4711, **given)["cache"] == f"{cache}/kernel_agent/ncu_server"
    theirs = asked(4712, **given)
    assert theirs["cache"] == f"{shared}/kernel_agent-4712" and "belongs to another user" in (theirs["why_cache"] or "")


def test_a_cache_in_which_root_wrote_is_passed_over(shared: Path) -> None:
    inner = shared / "cache" / "kernel_agent" / "ncu_server" / "baselines"
    inner.mkdir(parents=True)
    for place in (inner.parent, inner.parent.parent, shared / "cache"):
        os.chown(place, 4711, 4711)
    found = asked(4711, XDG_CACHE_HOME=str(shared / "cache"), TMPDIR=str(shared))
    assert "holds baselines, which belongs to the user root" in (found["why_cache"] or "")


@pytest.mark.parametrize("trap", ["a folder of another user", "a link", "open to all"])
def test_a_folder_that_somebody_else_put_in_place_is_not_used(shared: Path, trap: str) -> None:
    place = shared / "kernel_agent-4711"
    if trap == "a link":
        place.symlink_to(shared)
    else:
        place.mkdir()
        place.chmod(0o777)
    if trap == "open to all":
        os.chown(place, 4711, 4711)
    found = asked(4711, TMPDIR=str(shared), HOME="/nonexistent")
    assert not Path(found["cache"] or "").is_relative_to(shared)
    shutil.rmtree(found["cache"] or "")


def test_what_a_server_holds_stays_and_what_a_killed_one_left_goes(tmp_path: Path) -> None:
    mine, lock = places.workplace(tmp_path)
    killed, gone = places.workplace(tmp_path)
    gone.close()
    not_locked_yet = tmp_path / "work-1-begins"
    not_locked_yet.mkdir()
    old = tmp_path / "work-2-old"
    old.mkdir()
    os.utime(old, (0, 0))
    assert set(places.left_behind(tmp_path)) == {killed, old}
    with lock, pytest.raises(BlockingIOError), (mine / places.LOCK).open() as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_only_folders_that_are_not_plain_get_other_names(tmp_path: Path) -> None:
    odd = tmp_path / "Jane $Doe's"
    odd.mkdir()
    (tmp_path / "jane").symlink_to(odd)
    names = places.aliased(tmp_path / "names", [str(tmp_path), str(odd), str(tmp_path / "jane")])
    assert set(names) == {str(odd), str(tmp_path / "jane")}
    assert places.plain(tmp_path / "names") and places.renamed(f"{tmp_path}/other", names) == f"{tmp_path}/other"
    (odd / "file").write_text("here")
    for path in (f"{odd}/file", f"{tmp_path}/jane/file"):
        assert (found := Path(places.renamed(path, names))) != Path(path) and found.read_text() == "here"
    assert places.renamed(f"{odd}-sibling", names) == f"{odd}-sibling"


@pytest.mark.asyncio
async def test_a_kernel_is_built_and_torch_compiles_whatever_the_folders_are_called(tmp_path: Path) -> None:
    odd = tmp_path / "Jane $Doe's; (ü)"
    odd.mkdir()
    (odd / "checkout").symlink_to(ROOT)
    (odd / "site").symlink_to(sysconfig.get_path("purelib"))
    parameters = server_parameters(odd)
    (tmp_path / "cwd").mkdir()
    parameters.env = (parameters.env or {}) | {
        "HOME": str(odd),
        "TMPDIR": str(odd),
        "PYTHONPATH": f"{odd}/site:{odd}/checkout",
    }
    async with opened(parameters) as server:
        answer = await server.evaluate(edit(QUICK, "* (float)s", "* 9"), baselines=["eager", "compile"])
        described = await server.call("describe_problem", problem=SCALE_ADD, target="cpu", baselines=["compile"])
        environment = (await server.call("check_environment")).structured_content or {}
    assert answer["status"] == "wrong", answer["log"]
    assert "compile" in [row["name"] for row in (described.structured_content or {})["baselines"]], described
    folders = {row["name"]: row for row in environment["places"]}
    assert folders["cache"]["path"] == f"{odd}/kernel_agent/ncu_server" and folders["cache"]["why"] is None
    assert "which compilers do not bear" in folders["builds"]["why"]
