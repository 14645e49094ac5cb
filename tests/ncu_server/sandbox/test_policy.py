"""What a candidate tries against the machine fails, in the build and in the run, and the next kernel passes."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from mcp import Client, StdioServerParameters

from tests.support.edits import edit
from tests.support.measuring import QUICK, ROOT, SCALE_ADD, Server, opened, server_parameters

pytestmark = pytest.mark.asyncio(loop_scope="session")

SERVER_PID = 'int(open(f"/proc/{os.getppid()}/stat").read().rpartition(")")[2].split()[1])'
TRY = """
import os, socket, subprocess
succeeded = []
for code in {codes!r}:
    try:
        exec(code)
    except OSError as fault:
        print(code, fault)
    else:
        succeeded.append(code)
if succeeded:
    raise AssertionError(succeeded)
"""


def attempt(build: str = "", run: str = "") -> str:
    """QUICK with `build` run when it is imported (which the build does first), and `run` in each call of the run."""
    return build + "\n" + edit(QUICK, "return out", f"exec({run!r}, {{'torch': torch}})\n        return out")


async def none_succeeds(server: Server, both: list[str], run: list[str] | None = None) -> None:
    """Each of `both` raises OSError in the build and in the run, each of `run` in that, and the kernel passes."""
    tried = attempt(TRY.format(codes=both), TRY.format(codes=both + (run or [])))
    result = await server.evaluate(tried)
    assert result["status"] == "passed", result["log"]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A file of the user's, open to everyone."""
    place = tmp_path / "thesis.txt"
    place.write_text("years of work")
    place.chmod(0o666)
    return place


async def test_files_outside_are_out_of_reach(server: Server, outside: Path) -> None:
    path = str(outside)
    codes = [
        f"os.remove({path!r})",
        f"open({path!r}, 'w').write('')",
        f"open({path!r}).read()",
        f"os.truncate({path!r}, 0)",
        f"os.rename({path!r}, 'mine')",
        f"os.link({path!r}, 'mine')",
        f"os.listdir({str(outside.parent)!r})",
        f"open({path!r} + '.new', 'w')",
        f"os.mkdir({path!r} + '.folder')",
        f"os.chown({path!r}, os.getuid(), os.getgid())",
        f"os.setxattr({path!r}, 'user.mine', b'1')",
        f"os.listdir({str(Path.home())!r})",
        f"os.listdir({str(ROOT)!r})",
        "os.listdir('..')",
        "open('/etc/shadow').read()",
        "open('/dev/shm/kernel_agent_left', 'w')",
        "open('/tmp/kernel_agent_left', 'w')",
        "open('/proc/sys/kernel/core_pattern', 'r+')",
    ]
    before = outside.stat()
    await none_succeeds(server, codes, run=[f"os.chmod({path!r}, 0)", f"os.utime({path!r}, (0, 0))"])
    assert outside.read_text() == "years of work"
    assert [p.name for p in outside.parent.iterdir()] == ["thesis.txt"]
    after = outside.stat()
    assert (after.st_mode, after.st_mtime) == (before.st_mode, before.st_mtime)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def small(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """A server that holds a key and gives its children one gigabyte."""
    parameters = server_parameters(tmp_path_factory.mktemp("small"))
    parameters.env = {**(parameters.env or {}), "NCU_SERVER_MEMORY_GIB": "1", "OPENAI_API_KEY": "sk-very-secret"}
    async with opened(parameters) as found:
        yield found


@pytest.mark.parametrize("step", ["build", "run"])
async def test_a_denied_attempt_is_a_verdict_with_its_traceback(server: Server, outside: Path, step: str) -> None:
    result = await server.evaluate(attempt(**{step: f"open({str(outside)!r})"}))
    assert result["status"] == {"build": "build_error", "run": "run_error"}[step]
    assert "PermissionError" in result["log"] and "thesis.txt" in result["log"]
    assert (await server.evaluate(QUICK))["status"] == "passed"


async def test_the_run_cannot_change_what_was_built(server: Server) -> None:
    find = "built = [r.split()[-1] for r in open('/proc/self/maps') if '/build-' in r]"
    await none_succeeds(server, [], run=[f"{find}; open(built[0], 'r+b')", f"{find}; os.remove(built[0])"])


LISTENERS: dict[str, tuple[int, int, Callable[[Path], object]]] = {
    "tcp": (socket.AF_INET, socket.SOCK_STREAM, lambda _: ("127.0.0.1", 0)),
    "udp": (socket.AF_INET, socket.SOCK_DGRAM, lambda _: ("127.0.0.1", 0)),
    "unix": (socket.AF_UNIX, socket.SOCK_STREAM, lambda p: str(p / "socket")),
    "unix datagram": (socket.AF_UNIX, socket.SOCK_DGRAM, lambda p: str(p / "socket")),
    "abstract": (socket.AF_UNIX, socket.SOCK_STREAM, lambda _: f"\0kernel_agent_{os.getpid()}"),
}


async def test_no_listener_hears_a_candidate(server: Server, tmp_path_factory: pytest.TempPathFactory) -> None:
    codes = []
    with contextlib.ExitStack() as stack:
        listeners = []
        for family, form, address in LISTENERS.values():
            listener = stack.enter_context(socket.socket(family, form))
            listeners.append(listener)
            listener.bind(address(tmp_path_factory.mktemp("s")))
            listener.setblocking(False)
            opened = f"socket.socket({int(family)}, {int(form)})"
            if form == socket.SOCK_STREAM:
                listener.listen()
                codes.append(f"{opened}.connect({listener.getsockname()!r})")
            else:
                codes.append(f"{opened}.sendto(b'secret', {listener.getsockname()!r})")
                codes.append(f"{opened}.sendmsg([b'secret'], [], 0, {listener.getsockname()!r})")
        await none_succeeds(server, codes)
        for listener in listeners:
            with pytest.raises(BlockingIOError):
                listener.accept() if listener.type == socket.SOCK_STREAM else listener.recv(100)


async def test_the_run_starts_no_program_and_no_process(server: Server) -> None:
    clone3 = "import ctypes; libc = ctypes.CDLL(None, use_errno=True); n = libc.syscall(435, bytes(88), 88)"
    codes = [
        "subprocess.run(['true'], check=True)",
        "os.execv('/bin/true', ['true'])",
        "os.posix_spawn('/bin/true', ['true'], {})",
        "os.fork() or os._exit(0)",
        "os.forkpty()",
        f"{clone3}\nif n < 0: raise OSError(ctypes.get_errno(), 'clone3')",
    ]
    await none_succeeds(server, [], run=codes)


async def test_server_and_fork_server_are_out_of_reach(server: Server) -> None:
    tries = [
        "os.kill(v, 9)",
        "os.kill(v, 19)",
        "open(f'/proc/{v}/environ', 'rb').read()",
        "open(f'/proc/{v}/mem', 'r+b')",
        "os.readlink(f'/proc/{v}/fd/0')",
        "os.readlink(f'/proc/{v}/exe')",
        "__import__('resource').prlimit(v, 9, (0, 0))",
        "os.sched_setscheduler(v, 3, os.sched_param(0))",
        "os.setpriority(os.PRIO_PROCESS, v, 19)",
    ]
    codes = [f"v = {victim}; {code}" for victim in ("os.getppid()", SERVER_PID) for code in tries]
    await none_succeeds(server, codes, run=["os.kill(-1, 9)"])


@pytest.mark.long
async def test_the_server_s_own_key_cannot_be_found_anywhere_in_proc(small: Server) -> None:
    code = """
import glob
for place in glob.glob('/proc/[0-9]*/environ'):
    try:
        assert b'sk-very-secret' not in open(place, 'rb').read(), place
    except OSError:
        pass
"""
    result = await small.evaluate(attempt(code, code))
    assert result["status"] == "passed", result["log"]


async def test_a_process_left_behind_by_the_build_is_killed(server: Server) -> None:
    mark = f"4321.{os.getpid()}"
    code = (
        f"import subprocess\ntry: subprocess.Popen(['sleep', '{mark}'], start_new_session=True)\nexcept OSError: pass"
    )
    result = await server.evaluate(attempt(code))
    assert result["status"] == "passed", result["log"]
    async with asyncio.timeout(5):
        while _running(mark):
            await asyncio.sleep(0.02)


def _running(word: str) -> list[str]:
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [place.parent.name] if word.encode() in place.read_bytes().split(b"\0") else []
        except OSError:
            continue
    return found


async def test_a_process_left_behind_dies_with_a_killed_server(tmp_path: Path) -> None:
    mark = f"4322.{os.getpid()}"
    sleeps = f"import subprocess, time\nsubprocess.Popen(['sleep', '{mark}'], start_new_session=True)\ntime.sleep(999)"
    with pytest.raises(BaseException):  # noqa: B017  the SDK wraps the closed connection in groups of its own
        async with Client(server_parameters(tmp_path)) as client:
            given = {"candidate": attempt(sleeps), "problem": SCALE_ADD, "target": "cpu"}
            call = asyncio.create_task(client.call_tool("evaluate_kernel", given))
            async with asyncio.timeout(60):
                while not _running(mark):
                    await asyncio.sleep(0.02)
            (work,) = (tmp_path / "kernel_agent" / "ncu_server").glob("work-*")
            os.kill(int(work.name.split("-")[1]), signal.SIGKILL)
            await call
    async with asyncio.timeout(5):
        while _running(mark):
            await asyncio.sleep(0.02)


@pytest.mark.long
async def test_a_fork_bomb_in_the_build_is_stopped(server: Server) -> None:
    result = await server.evaluate(attempt("import os\nwhile True: os.fork()"), timeout_s=30)
    assert result["status"] == "build_error"
    assert "it started more than" in result["log"] or "it used more than" in result["log"], result["log"]
    assert (await server.evaluate(QUICK))["status"] == "passed"


async def test_memory_beyond_the_cap_is_a_verdict(small: Server) -> None:
    eats = "import sys; room = bytearray(b'x') * (700 << 20); sys.stdin.read()"
    start = f"subprocess.Popen([{sys.executable!r}, '-c', {eats!r}], stdin=-1)"
    build = f"import subprocess\neaters = [{start} for _ in range(2)]"
    result = await small.evaluate(attempt(f"{build}\n[e.wait() for e in eaters]"))
    assert (result["status"], "used more than 1.0 GiB of memory" in result["log"]) == ("build_error", True)
    result = await small.evaluate(attempt(run="torch.ones(3 << 28)"))
    assert (result["status"], "allocate" in result["log"]) == ("run_error", True), result["log"]
    assert (await small.evaluate(QUICK))["status"] == "passed"


async def test_output_without_end_fills_no_disk(server: Server) -> None:
    code = "import os\nline = 'x' * (1 << 24)\nfor _ in range(1 << 20): os.write(1, line.encode())"
    result = await server.evaluate(attempt(run=code))
    assert (result["status"], "File too large" in result["log"]) == ("run_error", True), result["log"]


HONEST_WAYS = {
    "OpenMP": [
        ("for (int64_t i = 0;", "#pragma omp parallel for num_threads(4)\n  for (int64_t i = 0;"),
        ('["-O3"]', '["-O3", "-fopenmp"], extra_ldflags=["-fopenmp"]'),
    ],
    "std::thread": [
        ('r"""', 'r"""\n#include <thread>'),
        ("  for (int64_t i = 0;", "  std::thread t([=] {\n  for (int64_t i = 0;"),
        ("+ c[i % n];", "+ c[i % n]; }); t.join();"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("way", HONEST_WAYS)
async def test_honest_kernels_find_no_wall(server: Server, way: str) -> None:
    candidate = QUICK
    for change in HONEST_WAYS[way]:
        assert change[0] in candidate
        candidate = edit(candidate, *change)
    result = await server.evaluate(candidate)
    assert result["status"] == "passed", result["log"]


THREADS_AND_FILES = """
import os, tempfile, threading
t = threading.Thread(target=print); t.start(); t.join()
os.sched_setaffinity(0, os.sched_getaffinity(0))
with tempfile.NamedTemporaryFile() as f: f.write(b'1')
os.makedirs(os.path.expanduser('~/.cache/mine'), exist_ok=True)
"""


async def test_threads_and_files_of_its_own_find_no_wall(server: Server) -> None:
    parallel = "torch.set_num_threads(2); torch.randn(1 << 20).sin(); torch.randn(500, 500) @ torch.randn(500, 500)"
    built = edit(QUICK, "nn.Parameter(torch.randn(256))", f"nn.Parameter(torch.randn(256)); {parallel}")
    result = await server.evaluate(edit(built, "return out", f"exec({THREADS_AND_FILES!r})\n        return out"))
    assert result["status"] == "passed", result["log"]


async def test_torch_s_load_inline_builds_with_ninja_and_runs(server: Server) -> None:
    assert "torch.utils.cpp_extension" in QUICK
    result = await server.evaluate(QUICK)
    assert result["status"] == "passed", result["log"]


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
async def test_nvcc_runs_in_the_build(server: Server) -> None:
    code = """
import subprocess
open('k.cu', 'w').write('__global__ void k(float* x) { x[0] = 1; }')
try:
    made = subprocess.run(['nvcc', '-arch=sm_90', '-cubin', 'k.cu'], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
except PermissionError:
    pass  # in the run
"""
    result = await server.evaluate(attempt(code))
    assert result["status"] == "passed", result["log"]


async def test_the_environment_and_the_verdict_name_the_walls(server: Server) -> None:
    answer = (await server.call("check_environment")).structured_content
    assert answer is not None
    assert {"files", "system calls", "network", "memory"} <= {w["name"] for w in answer["walls"]}
    assert all(w["why"] for w in answer["walls"])
    up = [w["name"] for w in answer["walls"] if w["stands"] and "cpu" in w["targets"]]
    result = await server.evaluate(QUICK)
    assert result["provenance"]["walls"].partition("; not: ")[0].split(", ") == up


WITHOUT_LANDLOCK = """
import errno, sys
from ncu_server.sandbox import landlock, seccomp; from ncu_server import server
seccomp.no_new_privileges()
refuse = (seccomp.RETURN, 0, 0, seccomp.ERRNO | errno.ENOSYS)
seccomp.load([(seccomp.LOAD, 0, 0, 0), (seccomp.EQUAL, 0, 1, landlock.CREATE_RULESET), refuse,
              (seccomp.RETURN, 0, 0, seccomp.ALLOW)])
server.main()
"""


@pytest.mark.long
async def test_a_missing_wall_is_named_and_honest_kernels_pass(tmp_path: Path) -> None:
    parameters = server_parameters(tmp_path)
    parameters.args = ["-c", WITHOUT_LANDLOCK]
    async with Client(parameters) as client:
        server = Server(client)
        answer = (await server.call("check_environment")).structured_content
        assert answer is not None
        (files,) = [w for w in answer["walls"] if w["name"] == "files" and "cpu" in w["targets"]]
        assert (files["stands"], "no Landlock" in files["why"]) == (False, True)
        spies = TRY.format(codes=[f"v = {SERVER_PID}; open(f'/proc/{{v}}/environ', 'rb').read()"])
        result = await server.evaluate(attempt(run=spies))
        assert result["status"] == "passed", result["log"]
        assert "files" in result["provenance"]["walls"].partition("; not: ")[2]


@pytest.fixture
def nobody() -> Iterator[StdioServerParameters]:
    """A server that an ordinary user runs."""
    drop = ["--reuid", "65534", "--regid", "65534", "--clear-groups"]
    if os.getuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv to become an ordinary user")
    code = f"import sys, os; sys.path.append({str(ROOT)!r}); os.stat({os.path.realpath(sys.executable)!r}); import mcp"
    if subprocess.run(["setpriv", *drop, sys.executable, "-c", code], capture_output=True, check=False).returncode:
        pytest.skip(f"an ordinary user cannot read {os.path.realpath(sys.executable)} and what it imports")
    # pytest's own folders are root's alone
    with tempfile.TemporaryDirectory() as place:
        os.chown(place, 65534, 65534)
        parameters = server_parameters(Path(place))
        parameters.env = {**(parameters.env or {}), "HOME": place}
        parameters.command, parameters.args = "setpriv", [*drop, sys.executable, *parameters.args]
        yield parameters


async def test_the_walls_stand_for_an_ordinary_user(nobody: StdioServerParameters, outside: Path) -> None:
    codes = [
        f"os.remove({str(outside)!r})",
        f"v = {SERVER_PID}; open(f'/proc/{{v}}/environ', 'rb').read()",
        "os.kill(os.getppid(), 9)",
        "socket.create_connection(('127.0.0.1', 1))",
    ]
    async with Client(nobody) as client:
        server = Server(client)
        await none_succeeds(server, codes)
        assert outside.exists()
        result = await server.evaluate(QUICK)
        assert "files" in result["provenance"]["walls"].partition("; not: ")[0]
