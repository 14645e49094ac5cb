"""The server over HTTP: who may call it, from where, with how much, and that the agent runs on it unchanged."""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
import pytest_asyncio
from pydantic import SecretStr

from kernel_agent import KernelAgent
from kernel_agent.bench.client import BenchClient
from kernel_agent.errors import ServerError
from kernel_agent.run.types import Problem, Status
from tests.support.edits import edit
from tests.support.http_server import TOKEN, Served, command, environment, served, until
from tests.support.measuring import QUICK, ROOT, SCALE_ADD, descendants

pytestmark = pytest.mark.asyncio(loop_scope="module")

ENDLESS = edit(QUICK, "return out", "import time; time.sleep(1000)")
ASKED = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
TYPES = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    with served(tmp_path_factory.mktemp("cache")) as found:
        yield found


async def posted(url: str, token: str | None = TOKEN, body: object = ASKED, **headers: str) -> httpx2.Response:
    given = TYPES | ({"authorization": f"Bearer {token}"} if token else {}) | headers
    async with httpx2.AsyncClient() as http:
        return await http.post(url, json=body, headers=given)


@pytest.mark.parametrize("token", [None, "short"])
async def test_it_does_not_start_without_a_token_and_says_that_it_executes_code(
    tmp_path: Path, token: str | None
) -> None:
    env = environment(tmp_path) | ({"NCU_SERVER_TOKEN": token} if token else {})
    done = subprocess.run(command(), capture_output=True, text=True, env=env, timeout=60)
    assert done.returncode == 2
    assert "NCU_SERVER_TOKEN" in done.stderr and "executes the code that it is sent" in done.stderr
    assert len(done.stderr.splitlines()) == 1


async def test_an_address_that_cannot_be_had_is_one_sentence(tmp_path: Path) -> None:
    env = environment(tmp_path, NCU_SERVER_TOKEN=TOKEN)
    done = subprocess.run(command("--host", "203.0.113.1"), capture_output=True, text=True, env=env, timeout=60)
    assert done.returncode == 2 and "cannot listen on 203.0.113.1" in done.stderr


async def test_a_local_address_is_the_default(here: Served) -> None:
    assert here.url.startswith("http://127.0.0.1:") and here.url.endswith("/mcp")


@pytest.mark.parametrize("mode", [pytest.param("legacy", marks=pytest.mark.long), "2026-07-28", "auto"])
async def test_both_eras_of_the_protocol_are_served(here: Served, mode: str) -> None:
    async with here.client(mode) as server:
        assert "evaluate_kernel" in {tool.name for tool in (await server.client.list_tools()).tools}
        assert (await server.evaluate(QUICK))["status"] == "passed"


@pytest.mark.parametrize("token", [None, "another-token-altogether", TOKEN + "x", "täuschung-überall-möglich"])
async def test_without_the_token_nothing_is_answered(here: Served, token: str | None) -> None:
    header = {"authorization": f"Bearer {token}".encode()} if token else {}
    async with httpx2.AsyncClient() as http:
        answer = await http.post(here.url, json=ASKED, headers={**TYPES, **header})  # type: ignore[dict-item]
    assert answer.status_code == 401 and "tools" not in answer.text


async def test_the_token_is_not_handed_to_what_it_starts(here: Served) -> None:
    async with here.client() as server:
        peek = "import os\nassert 'NCU_SERVER_TOKEN' not in os.environ\n"
        assert (await server.evaluate(peek + QUICK))["status"] == "passed"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "evil.example:8931"}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"content-type": "text/plain"}, 400),
    ],
)
async def test_requests_of_other_hosts_and_origins_are_turned_away(
    here: Served, headers: dict[str, str], status: int
) -> None:
    assert (await posted(here.url, **headers)).status_code == status


async def test_a_body_that_is_too_large_is_turned_away(here: Served) -> None:
    body = ASKED | {"params": {"padding": "x" * (5 << 20)}}
    assert (await posted(here.url, body=body)).status_code == 413
    assert (await posted(here.url, None, body=body)).status_code == 401


async def test_what_is_no_message_is_answered_with_the_code_of_its_fault(here: Served) -> None:
    headers = TYPES | {"authorization": f"Bearer {TOKEN}"}
    async with httpx2.AsyncClient() as http:
        for body, code in ((b'{"jsonrpc": "2.0", "id": 5,', -32700), (b'{"x": "\xff"}', -32700), (b"42", -32600)):
            answer = await http.post(here.url, content=body, headers=headers)
            assert answer.status_code == 400 and answer.json()["error"]["code"] in (code, -32602), answer.text
            assert (answer.json()["error"]["code"] == -32700) is (code == -32700)


async def test_a_named_host_is_checked_as_well(tmp_path: Path) -> None:
    with served(tmp_path, "--host", "0.0.0.0", "--allow-host", "gpu-box") as found:
        port = found.url.split(":")[2].split("/")[0]
        url = f"http://127.0.0.1:{port}/mcp"
        assert (await posted(url, host=f"gpu-box:{port}")).status_code != 421
        assert (await posted(url, host="gpu-box")).status_code != 421
        assert (await posted(url, host="gpu-box.evil.example")).status_code == 421
        assert (await posted(url, origin="https://gpu-box")).status_code != 403
        assert (await posted(url, origin="https://gpu-box.evil.example")).status_code == 403


async def test_the_agents_client_says_why_it_is_turned_away(here: Served, tmp_path: Path) -> None:
    for token in (None, SecretStr("another-token-altogether")):
        with pytest.raises(ServerError, match="set NCU_SERVER_TOKEN to the one"):
            async with BenchClient(here.url, tmp_path, token=token):
                pass
    with pytest.raises(ServerError, match="its own is /mcp"):
        async with BenchClient(edit(here.url, "/mcp", "/"), tmp_path, token=SecretStr(TOKEN)):
            pass
    async with BenchClient(here.url, tmp_path, token=SecretStr(TOKEN)) as bench:
        with pytest.raises(ServerError, match="too long for it"):
            await bench.evaluate(Problem("x", SCALE_ADD, "cpu"), "#" * (5 << 20))
        evaluation = await bench.evaluate(Problem("x", SCALE_ADD, "cpu"), QUICK)
        assert evaluation.status is Status.PASSED


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_cancelled_call_leaves_no_process_and_the_next_is_served(here: Served, mode: str) -> None:
    async with here.client(mode) as server:
        await server.evaluate(QUICK)
        before = descendants(here.pid)
        checking = asyncio.Event()

        async def note(progress: float, total: float | None, message: str | None) -> None:
            if message == "checking":
                checking.set()

        given = {"candidate": ENDLESS, "problem": SCALE_ADD, "target": "cpu"}
        call = asyncio.create_task(server.client.call_tool("evaluate_kernel", given, progress_callback=note))
        await checking.wait()
        await until(lambda: descendants(here.pid) - before)
        call.cancel()
        await until(lambda: not descendants(here.pid) - before)
        assert (await server.evaluate(QUICK))["status"] == "passed"


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_server_that_ends_takes_its_children_along(tmp_path: Path, number: signal.Signals) -> None:
    with served(tmp_path) as found:
        async with found.client() as server:
            await server.evaluate(QUICK)
        family = descendants(found.pid)
        assert family
        os.kill(found.pid, number)
        await until(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() and alive(pid) for pid in family), 20)
    assert number is signal.SIGKILL or not list((tmp_path / "kernel_agent" / "ncu_server").glob("work-*"))


def alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.mark.long
async def test_the_agent_runs_on_an_address_unchanged(
    here: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NCU_SERVER_TOKEN", TOKEN)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    agent = KernelAgent(
        mcp_server_path=here.url,
        branching_factor=1,
        num_rounds=1,
        target="cpu",
        retrieval="lexical",
        provider="templates",
    )
    code = edit((ROOT / "examples" / "softmax.py").read_text(), "4096", "64", times=2)
    _, results = await agent.generate_kernel(code, run_directory=tmp_path / "run")
    assert results["status"] in ("improved", "no_improvement") and results["trials"] >= 1
    assert TOKEN.encode() not in b"".join(f.read_bytes() for f in (tmp_path / "run").rglob("*") if f.is_file())
