"""The selftest as a person runs it, on cases that need no build; and what it lays out for candidates to leave alone."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ncu_server.selftest.canaries import Canaries
from ncu_server.selftest.cases import cases
from tests.support.edits import edit
from tests.support.measuring import ROOT, SCALE_ADD

pytestmark = pytest.mark.asyncio(loop_scope="session")

CASE = '"""\nproblem: p\nkind: k\nexpect: {expect}\nwhy: It has no ModelNew.\n"""\n\nimport torch\n'
CATALOGUE = '[cheats]\nk = "a"\n[honest]\nh = "b"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Cases of which one is expected to be turned away, as it is, and one to pass, as it does not."""
    for name in ("problems", "cpu"):
        (tmp_path / name).mkdir()
    (tmp_path / "catalogue.toml").write_text(CATALOGUE)
    (tmp_path / "problems" / "p.py").write_text(SCALE_ADD)
    (tmp_path / "cpu" / "right.py").write_text(CASE.format(expect="rejected|wrong"))
    (tmp_path / "cpu" / "violated.py").write_text(CASE.format(expect="passed"))
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ncu_server", "selftest", "--cases", str(folder), *arguments]
    env = os.environ | {"XDG_CACHE_HOME": str(folder / "cache"), "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=env, cwd=folder)


async def test_a_verdict_that_is_not_as_expected_ends_with_one_and_is_named(folder: Path) -> None:
    done = run(folder)
    assert done.returncode == 1, done.stderr
    ok, failed = (next(r for r in done.stdout.splitlines() if name in r) for name in ("cpu/right", "cpu/violated"))
    assert ok.startswith("ok") and failed.startswith("FAIL")
    assert "1 of 2" in done.stdout
    assert "no `ModelNew`" in done.stdout


async def test_all_as_expected_ends_with_zero_and_json_is_a_line_a_case(folder: Path) -> None:
    done = run(folder, "--json", "right")
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert (row["case"], row["said"], row["ok"]) == ("cpu/right", "rejected", True)


@pytest.mark.parametrize("arguments", [("nothing",), ("--target", "cuda", "right")])
async def test_a_name_that_fits_nothing_is_said_and_ends_with_two(folder: Path, arguments: tuple[str, ...]) -> None:
    done = run(folder, *arguments)
    assert (done.returncode, "there is no case" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("kind: k\n", "", "lacks kind"),
        ("kind: k", "kind: other", "no kind 'other'"),
        ("rejected|wrong", "fine", "no status fine"),
        ("why:", "because: of\nwhy:", "unknown rows: because"),
        ("why:", "effects: file, moon\nwhy:", "no effects"),
    ],
)
async def test_a_header_that_is_not_sound_is_named(folder: Path, old: str, new: str, words: str) -> None:
    case = folder / "cpu" / "right.py"
    case.write_text(edit(case.read_text(), old, new))
    with pytest.raises(ValueError, match=f"cpu/right.*{words}"):
        cases(folder)


def _connect(canaries: Canaries) -> None:
    socket.create_connection(("127.0.0.1", int(canaries.fill("@PORT@")))).close()


def _kill(canaries: Canaries) -> None:
    pid = int(canaries.fill("@VICTIM@"))
    os.kill(pid, 9)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


DEEDS: dict[str, Callable[[Canaries], None]] = {
    "file": lambda c: Path(c.fill("@DIRECTORY@/thesis.txt")).unlink(),
    "network": _connect,
    "victim": _kill,
}


@pytest.mark.parametrize("what", DEEDS)
async def test_what_is_done_to_a_canary_is_told(what: str) -> None:
    with Canaries() as canaries:
        assert await canaries.touched("") == ()
        DEEDS[what](canaries)
        assert await canaries.touched("") == (what,)


async def test_a_key_in_what_is_said_and_a_process_left_behind_are_told() -> None:
    with Canaries() as canaries:
        environment = Path(canaries.fill("/proc/@VICTIM@/environ")).read_text()
        assert await canaries.touched(f"log: {environment}") == ("key",)
        waits = "print(flush=True); input()"
        left = subprocess.Popen(
            [sys.executable, "-c", waits, canaries.mark], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert left.stdout is not None
        left.stdout.readline()  # a process has no command line until its exec is done
        assert await canaries.touched("") == ("process",)
        left.communicate(b"\n")
