"""One queue a device for all servers: order, sharing, cancellation, death of a holder, other users, no place at all."""

import asyncio
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mcp import Client

from ncu_server.machine.tickets import ROOT_VARIABLE, Tickets
from tests.support.edits import edit
from tests.support.measuring import HONEST, ROOT, SCALE_ADD, Server, server_parameters

HOLD = """
import asyncio, sys
from ncu_server.machine.tickets import Tickets
async def main():
    async with Tickets("device").hold(sys.argv[1] == "alone"):
        print("held", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path / "leases"))
    return tmp_path / "leases"


@asynccontextmanager
async def holder(kind: str, *python: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Another process that asks for the device, and prints a line when it has it."""
    process = await asyncio.create_subprocess_exec(
        *(python or [sys.executable]), "-c", HOLD, kind, stdin=-1, stdout=-1, cwd=ROOT
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def holds(process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    assert await process.stdout.readline() == b"held\n"


async def wait(alone: bool, said: list[str]) -> None:
    async def report(message: str, *, ahead: int | None = None) -> None:
        assert message == f"queued behind {ahead} of other servers"
        said.append(message)

    async with Tickets("device").hold(alone, report):
        said.append("held")


@pytest.mark.parametrize(("theirs", "ours", "waits"), [
    ("alone", True, True), ("alone", False, True), ("shared", True, True), ("shared", False, False),
])  # fmt: skip
async def test_alone_means_alone_in_the_machine_and_a_killed_holder_holds_nothing(
    theirs: str, ours: bool, waits: bool
) -> None:
    said: list[str] = []
    async with holder(theirs) as other:
        await holds(other)
        waiting = asyncio.create_task(wait(ours, said))
        async with asyncio.timeout(10):
            while not said:
                await asyncio.sleep(0)
        assert said[0] == ("queued behind 1 of other servers" if waits else "held")
        other.send_signal(signal.SIGKILL)
        await asyncio.wait_for(waiting, 10)
    assert said[-1] == "held"


async def test_first_come_first_served_and_the_place_in_the_queue_is_told(place: Path) -> None:
    said: list[str] = []
    async with holder("shared") as first:
        await holds(first)
        async with holder("alone") as second:
            async with asyncio.timeout(10):
                while len(list((place / "device").iterdir())) < 2:
                    await asyncio.sleep(0)
            waiting = asyncio.create_task(wait(True, said))
            await asyncio.sleep(0)
            async with asyncio.timeout(10):
                while not said:
                    await asyncio.sleep(0)
            first.kill()
            await holds(second)
            assert said[0] == "queued behind 2 of other servers"
            async with asyncio.timeout(10):
                while len(said) < 2:
                    await asyncio.sleep(0)
        await asyncio.wait_for(waiting, 10)
    assert said[1:] == ["queued behind 1 of other servers", "held"]
    assert not list((place / "device").iterdir()), "tickets are given back"


async def test_who_gives_up_waiting_is_waited_for_by_nobody(place: Path) -> None:
    said: list[str] = []
    async with holder("alone") as other:
        await holds(other)
        waiting = asyncio.create_task(wait(True, said))
        async with asyncio.timeout(10):
            while not said:
                await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert len(list((place / "device").iterdir())) == 1
        other.kill()
    await asyncio.wait_for(wait(True, said), 10)


async def test_another_user_waits_in_the_same_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    drop = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    if os.getuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv to become an ordinary user")
    pythons = (str(python) for python in (sys.executable, "/usr/bin/python3"))
    theirs = next(
        (
            python
            for python in pythons
            if subprocess.run(
                [*drop, python, "-c", "import ncu_server.machine.tickets"], cwd=ROOT, capture_output=True
            ).returncode
            == 0
        ),
        None,
    )
    if theirs is None:
        pytest.skip("an ordinary user can run no Python here")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        monkeypatch.setenv(ROOT_VARIABLE, f"{folder}/leases")
        for ours_first in (True, False):
            said: list[str] = []
            async with holder("alone", *([] if ours_first else [*drop, theirs])) as first:
                await holds(first)
                async with holder("alone", *([*drop, theirs] if ours_first else [])) as second:
                    waiting = asyncio.create_task(wait(True, said))
                    first.kill()
                    await holds(second)
                    second.kill()
                    await asyncio.wait_for(waiting, 10)


@pytest.mark.parametrize("place_is", ["a file", "a link"])
async def test_where_a_queue_has_no_place_nobody_is_waited_for_and_it_says_why(
    place: Path, tmp_path: Path, place_is: str
) -> None:
    if place_is == "a file":
        place.write_text("")
    else:
        place.mkdir()
        (place / "device").symlink_to(tmp_path)
    tickets = Tickets("device")
    async with tickets.hold(True):
        assert tickets.fault is not None and str(place) in tickets.fault


LOGGED = edit(
    SCALE_ADD,
    "        return x * self.scale",
    "        open({log!r}, 'a').write({name!r})\n        return x * self.scale",
)


@pytest.mark.long
async def test_two_servers_never_time_at_the_same_moment(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for name in "ab":
        (tmp_path / name).mkdir()
    async with (
        Client(server_parameters(tmp_path / "a")) as a,
        Client(server_parameters(tmp_path / "b")) as b,
    ):
        results = await asyncio.gather(
            *(
                Server(client).evaluate(
                    HONEST, problem=edit(edit(LOGGED, "{log!r}", repr(str(log))), "{name!r}", repr(name))
                )
                for client, name in ((a, "a"), (b, "b"))
            )
        )
    assert [r["status"] for r in results] == ["passed", "passed"]
    assert not [note for r in results for note in r["notes"] if "other servers" in note]
    calls = log.read_text()
    turns = sum(one != other for one, other in itertools.pairwise(calls))
    assert calls.count("a") > 50 and calls.count("b") > 50
    assert turns <= 6, "each server is alone while it prepares, and while it checks and times"
