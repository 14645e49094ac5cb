"""Clients that behave badly: those that cancel, give up, vanish, come in crowds; and clients of other makers."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.edits import edit
from tests.support.http_server import TOKEN, Served, served, until
from tests.support.measuring import QUICK, ROOT, SCALE_ADD, descendants, server_parameters

pytestmark = pytest.mark.asyncio(loop_scope="module")

ENDLESS = {"candidate": edit(QUICK, "return out", "import time; time.sleep(1000)"), "problem": SCALE_ADD}

LEAVES = """
import asyncio, os, sys
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

async def main():
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {sys.argv[2]}"}, timeout=300) as http:
        async with Client(streamable_http_client(sys.argv[1], http_client=http), mode=sys.argv[3]) as client:
            async def note(progress, total, message):
                if message == "checking":
                    print("checking", flush=True)
            given = {"candidate": sys.stdin.read(), "problem": PROBLEM, "target": "cpu", "timeout_s": 15}
            await client.call_tool("evaluate_kernel", given, progress_callback=note)

asyncio.run(main())
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    with served(tmp_path_factory.mktemp("cache")) as found:
        async with found.client() as server:
            await server.evaluate(QUICK)
        yield found


@pytest.mark.parametrize("mode", [pytest.param("legacy", marks=pytest.mark.long), "2026-07-28"])
async def test_a_client_that_is_killed_leaves_no_process_and_the_next_is_served(here: Served, mode: str) -> None:
    before = descendants(here.pid)
    script = edit(LEAVES, "PROBLEM", repr(SCALE_ADD))
    client = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", script, here.url, TOKEN, mode),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert client.stdin and client.stdout
    client.stdin.write(ENDLESS["candidate"].encode())
    client.stdin.close()
    assert await client.stdout.readline() == b"checking\n"
    await until(lambda: descendants(here.pid) - before)
    client.send_signal(signal.SIGKILL)
    await client.wait()
    # The protocol of 2025 does not count a lost connection as a cancellation: there timeout_s ends the call.
    await until(lambda: not descendants(here.pid) - before, 30)
    async with here.client(mode) as server:
        assert (await server.evaluate(QUICK))["status"] == "passed"


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_client_that_gives_up_leaves_no_process(here: Served, mode: str) -> None:
    before = descendants(here.pid)
    async with here.client(mode) as server:
        with pytest.raises(BaseException):  # noqa: B017  the SDK names it differently in each era
            await server.client.call_tool("evaluate_kernel", ENDLESS | {"target": "cpu"}, 4.0)
        await until(lambda: not descendants(here.pid) - before)
        assert (await server.evaluate(QUICK))["status"] == "passed"


@pytest.mark.long
async def test_eight_clients_at_once_are_all_served_and_nothing_is_left(here: Served) -> None:
    before = descendants(here.pid)

    async def one(number: int) -> str:
        async with here.client("legacy" if number % 2 else "2026-07-28") as server:
            if number % 4 == 0:
                call = asyncio.create_task(server.client.call_tool("evaluate_kernel", ENDLESS | {"target": "cpu"}))
                await asyncio.wait({call}, timeout=1.0)
                call.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await call
            return str((await server.evaluate(f"# {number}\n{QUICK}"))["status"])

    async with asyncio.timeout(280):
        assert await asyncio.gather(*(one(number) for number in range(8))) == ["passed"] * 8
    await until(lambda: not descendants(here.pid) - before)


async def test_a_client_on_stdio_that_is_killed_takes_its_server_along(tmp_path: Path) -> None:
    parameters = server_parameters(tmp_path)
    script = (
        "import asyncio, sys\nfrom mcp import Client, StdioServerParameters\n"
        "async def main():\n"
        "    async with Client(StdioServerParameters(command=sys.executable, args=['-m', 'ncu_server'])) as client:\n"
        "        async def note(progress, total, message):\n"
        "            if message == 'checking': print('checking', flush=True)\n"
        f"        given = {{'candidate': {ENDLESS['candidate']!r}, 'problem': {SCALE_ADD!r}, 'target': 'cpu'}}\n"
        "        await client.call_tool('evaluate_kernel', given, progress_callback=note)\n"
        "asyncio.run(main())\n"
    )
    script = edit(script, "args=['-m', 'ncu_server']", f"args=['-m', 'ncu_server'], env={parameters.env!r}")
    before = descendants(os.getpid())
    client = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", script), stdout=asyncio.subprocess.PIPE, env=parameters.env
    )
    assert client.stdout and await client.stdout.readline() == b"checking\n"
    family = descendants(client.pid)
    assert len(family) > 1
    client.send_signal(signal.SIGKILL)
    await client.wait()
    await until(lambda: not any(_lives(pid) for pid in family), 30)
    assert not descendants(os.getpid()) - before


def _lives(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_clients_of_other_makers_find_nothing_wrong(tmp_path: Path) -> None:
    """Inspector, conformance scenarios, fastmcp, mcp<2 and a fuzzer; they are installed once and kept."""
    line = [sys.executable, "-m", "benchmarks.clients", "--result", str(tmp_path / "clients.md")]
    done = subprocess.run(line, capture_output=True, text=True, cwd=ROOT)
    if done.returncode == 3:
        pytest.skip(done.stderr.strip())
    print(done.stdout)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
