"""What would take a GPU down (`-m gpu`): after each of these the next honest kernel passes."""

import asyncio
import os
import signal
import subprocess
from pathlib import Path

import pytest
from mcp import Client

from tests.support.cuda_kernels import LIGHT, status
from tests.support.edits import edit
from tests.support.measuring import SCALE_ADD, Server, command, descendants, server_parameters

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.gpu]

BOMB = "kept = [torch.empty(1 << 30, dtype=torch.uint8, device='cuda') for _ in range(1 << 10)]\n        return out"
TRAP = ("if (i < n)", 'asm volatile("trap;"); if (i < n)')
LEAVE = "import os; os._exit(0)\n        return out"


@pytest.mark.parametrize(
    ("change", "expected", "word"),
    [
        (("return out", BOMB), "run_error", "OutOfMemoryError"),
        (TRAP, "run_error", ""),
        (("return out", LEAVE), "run_error", "exit code 0"),
    ],
    ids=["memory bomb", "trap", "leaves its kernel running"],
)
async def test_a_device_taken_down_by_one_candidate_serves_the_next(
    server: Server, change: tuple[str, str], expected: str, word: str
) -> None:
    assert change[0] in LIGHT
    found, log = await status(server, edit(LIGHT, *change), timeout_s=60)
    assert (found, word in log) == (expected, True), log
    assert (await status(server, LIGHT))[0] == "passed"


def used_mib() -> int:
    """Memory in use on the first GPU; processes in other containers count too."""
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
    return int(subprocess.run(query, capture_output=True, text=True, check=True).stdout)


async def test_a_server_killed_while_a_kernel_spins_leaves_nothing_on_the_device(tmp_path: Path) -> None:
    before, idle = descendants(os.getpid()), used_mib()
    checking = asyncio.Event()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        if message == "checking":
            checking.set()

    async def judged() -> None:
        async with Client(server_parameters(tmp_path)) as client:
            given = {"candidate": edit(LIGHT, "if (i < n)", "while (true)"), "problem": SCALE_ADD, "target": "cuda"}
            await client.call_tool("evaluate_kernel", given, progress_callback=note)

    call = asyncio.create_task(judged())
    await asyncio.wait_for(checking.wait(), 120)
    async with asyncio.timeout(60):  # a context takes over 400 MiB on an H100: the reference's and the one that spins
        while (now := used_mib()) < idle + 800:
            idle = min(idle, now)  # what other tests' servers leave meanwhile
            await asyncio.sleep(0.1)
    (main,) = [p for p in descendants(os.getpid()) - before if _is_server(p)]
    born = {main, *descendants(main)}
    os.kill(main, signal.SIGKILL)
    async with asyncio.timeout(30):
        while born & descendants(1) or used_mib() > idle + 64:  # orphans move to init
            await asyncio.sleep(0.1)
    with pytest.raises(BaseException):  # noqa: B017  the SDK wraps the closed connection in groups of its own
        await call
    async with Client(server_parameters(tmp_path)) as client:
        assert (await status(Server(client), LIGHT))[0] == "passed"


def _is_server(pid: int) -> bool:
    return b"ncu_server" in command(pid)[2:3]
