"""What would take a judge down: after each of these the next honest kernel passes, and what was ours is still there."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.edits import edit
from tests.support.measuring import QUICK, SCALE_ADD, Server, command, descendants, opened, server_parameters

pytestmark = pytest.mark.asyncio(loop_scope="session")


def in_forward(code: str) -> str:
    return edit(QUICK, "return out", f"exec({code!r})\n        return out")


async def passes(server: Server) -> None:
    result = await server.evaluate(QUICK)
    assert result["status"] == "passed", result["log"]


DEAF = """
import signal
for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, signal.Signals)
while True: pass
"""


@pytest.mark.long
@pytest.mark.parametrize("step", ["build", "run"])
async def test_an_endless_loop_that_ignores_every_signal_is_a_timeout(server: Server, step: str) -> None:
    candidate = DEAF + QUICK if step == "build" else in_forward(DEAF)
    result = await server.evaluate(candidate, timeout_s=3)
    assert result["status"] == "timeout", result
    await passes(server)


async def test_a_compile_that_never_ends_is_a_timeout_and_no_compiler_stays(server: Server) -> None:
    loop = "constexpr long f() { long s = 0; for (long i = 0; i < (1l << 60); ++i) s ^= i; return s; }"
    source = edit(QUICK, "#include <cmath>", f"#include <cmath>\n{loop}\nconstexpr long g = f();")
    flags = '["-O3", "-fconstexpr-ops-limit=9223372036854775807", "-fconstexpr-loop-limit=2147483647"]'
    result = await server.evaluate(edit(source, '["-O3"]', flags), timeout_s=6)
    assert result["status"] == "timeout", result
    await passes(server)
    parts = [part for pid in descendants(os.getpid()) for part in command(pid)]
    assert not [part for part in parts if b"constexpr-ops-limit" in part]


@pytest.mark.long
async def test_ten_gigabytes_of_output_in_the_build_fill_no_disk(server: Server) -> None:
    flood = "import os\nline = b'x' * (1 << 24)\nfor _ in range(640): os.write(1, line)\n"
    result = await server.evaluate(flood + QUICK)
    assert (result["status"], "File too large" in result["log"]) == ("build_error", True), result["log"]
    await passes(server)


CHANNEL = """
import os, socket, struct
def tell(data, then=""):
    for fd in range(3, 64):
        try:
            if os.readlink(f"/proc/self/fd/{fd}").startswith("socket:"): os.write(fd, data)
        except OSError:
            pass
    exec(then)
"""
NONSENSE = {
    "noise": "tell(os.urandom(4096))",
    "half a header": "tell(b'\\0\\0\\0', 'os._exit(0)')",
    "half a message": "tell(struct.pack('>II', 4096, 0) + b'{', 'os._exit(0)')",
    "no length": "tell(struct.pack('>II', 0, 0))",
    "too long a message": "tell(struct.pack('>II', (1 << 32) - 1, 0))",
    "deep": "n = 100_000; tell(struct.pack('>II', n, 0) + b'[' * n)",
    "no text": "tell(struct.pack('>II', 3, 0) + b'\\xff\\xfe\\xfd')",
    "no object": "tell(struct.pack('>II', 4, 0) + b'null')",
    "a number of a million digits": "n = 1_000_000; tell(struct.pack('>II', n, 0) + b'1' * n)",
    "infinite times": """m = b'{"value": [Infinity]}'; [tell(struct.pack(">II", len(m), 0) + m) for _ in range(40)]""",
}


@pytest.mark.long
@pytest.mark.parametrize("step", ["build", "run"])
async def test_nonsense_on_its_channel_is_the_candidate_s_fault(server: Server, step: str) -> None:
    for name, code in NONSENSE.items():
        spoken = CHANNEL + code + "\n"
        result = await server.evaluate(spoken + QUICK if step == "build" else in_forward(spoken))
        assert result["status"] in ("build_error", "run_error", "wrong"), (name, result)
    await passes(server)


async def test_what_a_candidate_leaves_on_the_disk_goes_with_it(server: Server) -> None:
    keeps = "open('left', 'wb').write(bytes(1 << 20)); open('/'.join([os.environ['TMPDIR'], 'too']), 'wb').write(b'1')"
    for candidate in (in_forward(f"import os; {keeps}"), f"import os; {keeps}; raise RuntimeError\n" + QUICK):
        await server.evaluate(candidate)
    await passes(server)
    assert server.cache is not None
    (work,) = server.cache.glob("kernel_agent/ncu_server/work-*")
    async with asyncio.timeout(10):
        while list(work.glob("*/left")) or list(work.glob("candidate-*")) or list(work.glob("builder-*")):
            await asyncio.sleep(0.02)


@pytest.mark.long
@pytest.mark.parametrize(("code", "words"), [
    ("for i in range(99): open(str(i), 'wb').write(bytes(1 << 28))", "wrote more than"),
    ("for i in range(1 << 20): open(str(i), 'wb').close()", "made more than"),
], ids=["gigabytes", "files"])  # fmt: skip
async def test_who_fills_the_disk_is_stopped(server: Server, code: str, words: str) -> None:
    result = await server.evaluate(in_forward(code))
    assert (result["status"], words in result["log"]) == ("run_error", True), result["log"]
    await passes(server)


@pytest_asyncio.fixture(loop_scope="session")
async def cramped(tmp_path: Path) -> AsyncIterator[tuple[Server, Path]]:
    """A server whose cache is a small disk of its own, and that disk as this process can reach it."""
    if shutil.which("unshare") is None or os.system("unshare -rm mount -t tmpfs none /mnt 2>/dev/null"):
        pytest.skip("no disk can be mounted here, not even in a namespace")
    parameters = server_parameters(tmp_path)
    mounted = f'mount -t tmpfs -o size=640m none "{tmp_path}" && cd "{tmp_path}" && exec "$@"'
    parameters.args = ["-rm", "sh", "-c", mounted, "sh", parameters.command, *parameters.args]
    parameters.command = "unshare"
    before = descendants(os.getpid())
    async with opened(parameters) as server:
        await server.call("check_environment")
        (main,) = [p for p in descendants(os.getpid()) - before if _is_server(p)]
        yield server, Path(f"/proc/{main}/root{tmp_path}")


def _is_server(pid: int) -> bool:
    return b"ncu_server" in command(pid)[1:3]


@pytest.mark.long
async def test_a_full_disk_is_no_candidate_s_fault_and_with_room_the_next_passes(
    cramped: tuple[Server, Path],
) -> None:
    server, disk = cramped
    await passes(server)
    filler = disk / "filler"
    with filler.open("wb") as file:
        try:
            while file.write(bytes(1 << 20)):
                file.flush()
        except OSError:
            pass
    given = {"problem": SCALE_ADD, "target": "cpu"}
    for tool, more in (("evaluate_kernel", {"candidate": "# other\n" + QUICK}), ("describe_problem", {})):
        refusal = await server.refusal(tool, **given, **more)
        assert refusal.startswith("NO_ROOM: ") and "make room there" in refusal
        assert "\n" not in refusal
    filler.unlink()
    await passes(server)
    assert (await server.evaluate("# other\n" + QUICK))["status"] == "passed"


@pytest.mark.long
async def test_a_disk_that_fills_while_a_candidate_builds_is_not_booked_as_its_fault(
    cramped: tuple[Server, Path],
) -> None:
    server, disk = cramped
    await passes(server)
    waits = "import os, time\nopen('here', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.01)\n"
    call = asyncio.create_task(
        server.refusal("evaluate_kernel", candidate=waits + QUICK, problem=SCALE_ADD, target="cpu")
    )
    async with asyncio.timeout(60):
        while not (here := list(disk.glob("kernel_agent/ncu_server/work-*/builder-*/here"))):
            await asyncio.sleep(0.02)
    with (disk / "filler").open("wb") as file:
        (here[0].parent / "go").touch()
        try:
            while file.write(bytes(1 << 20)):
                file.flush()
        except OSError:
            pass
    assert (await call).startswith("NO_ROOM: ")
    (disk / "filler").unlink()
    assert (await server.evaluate("# again\n" + QUICK))["status"] == "passed"
