"""A pool of Ray actors: a real local Ray with two logical devices, where Ray is installed."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from kernel_agent.bench import ray_pool
from kernel_agent.bench.pool import open_pool
from kernel_agent.errors import ServerError, Unavailable, UsageError
from kernel_agent.interfaces import Stage
from kernel_agent.run.types import Status
from kernel_agent.settings import Settings, load_settings
from tests.support.http_server import until
from tests.support.scripted_run import BENCH, DESCRIPTION, PROBLEM

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install '.[ray]'")
pytestmark = [pytest.mark.filterwarnings("default")]  # Ray's own


def settings(directory: Path, *options: str, **given: Any) -> Settings:
    server = shlex.join(["python", str(BENCH), "--log", str(directory / "log"), *options])
    return load_settings(**{"mcp_server_path": server, "pool": "ray", "gpus": 2, "target": "cpu"} | given)


def entries(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_the_extra_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"pip install 'kernel-agent\[ray\]'"):
        open_pool(load_settings(pool="ray"), tmp_path, print)


@needs_ray
async def test_two_actors_share_the_calls_and_one_that_is_killed_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("HF_TOKEN", "secret")
    notices: list[str] = []
    gate = tmp_path / "gate"
    async with (
        asyncio.timeout(280),
        open_pool(settings(tmp_path, "--rendezvous", str(gate)), tmp_path, notices.append) as pool,
    ):
        description = await pool.describe(PROBLEM)
        assert description == DESCRIPTION and os.environ["OPENAI_API_KEY"] == "sk-secret"
        bench = pool.like(description.device)
        found = await asyncio.gather(*(bench.evaluate(PROBLEM, f"# speed: {n}") for n in range(1, 9)))
        assert [one.speedup for one in found] == list(range(1, 9))
        servers = {entry["pid"] for entry in entries(tmp_path / "log")}
        assert len(servers) == 2 and {entry["gpu"] for entry in entries(tmp_path / "log")} == {"0", "1"}
        for pid in (*servers, *map(parent, servers)):
            around = Path(f"/proc/{pid}/environ").read_bytes()
            assert b"sk-secret" not in around and b"HF_TOKEN=secret" not in around
        gate.touch()
        stages: list[Stage] = []
        work = [asyncio.create_task(bench.evaluate(PROBLEM, f"# speed: {n}", stages.append)) for n in range(1, 7)]
        await until(lambda: sum(stage.message == "timing" for stage in stages) == 2, 60)
        os.kill(parent(min(servers)), signal.SIGKILL)
        gate.unlink()
        assert [(await one).speedup for one in work] == list(range(1, 7))
        await until(lambda: len(notices) == 2, 120)
        await asyncio.gather(*(bench.evaluate(PROBLEM, f"# verdict: wrong {n}") for n in range(6)))
        servers |= {entry["pid"] for entry in entries(tmp_path / "log")}
    assert "is lost, its calls go to the others: it died" in notices[0] and notices[1].endswith("is back.")
    assert len(servers) == 3
    await until(lambda: not any(map(alive, servers)), 30)


@needs_ray
async def test_a_server_that_dies_in_its_actor_is_started_again_there(tmp_path: Path) -> None:
    notices: list[str] = []
    path = settings(tmp_path, "--die-at", "2", "--behave", "die once")
    async with asyncio.timeout(280), open_pool(path, tmp_path, notices.append) as pool:
        found = await asyncio.gather(*(pool.evaluate(PROBLEM, f"# speed: {n}") for n in range(1, 7)))
        assert [one.speedup for one in found] == list(range(1, 7))
        await until(lambda: len(notices) == 2, 60)
        with pytest.raises(Unavailable, match="so it was ordered"):
            await pool.evaluate(PROBLEM, "# refuse: NO_DEVICE")
        assert (await pool.evaluate(PROBLEM, "# verdict: wrong")).status is Status.WRONG


@needs_ray
async def test_an_actor_that_gives_no_answer_in_time_is_killed_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_pool, "BEYOND_S", 4.0)
    notices: list[str] = []
    gate = tmp_path / "gate"
    gate.touch()

    def notice(sentence: str) -> None:
        notices.append(sentence)
        gate.unlink(missing_ok=True)

    path = settings(tmp_path, "--rendezvous", str(gate), evaluation_timeout_s=8)
    async with asyncio.timeout(280), open_pool(path, tmp_path, notice) as pool:
        assert (await pool.evaluate(PROBLEM, "# speed: 2")).speedup == 2
        await until(lambda: len(notices) == 2, 120)
    assert "it gave no answer, and was killed" in notices[0] and notices[1].endswith("is back.")


@needs_ray
async def test_a_ray_that_cannot_be_reached_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match=r"^Ray at 127\.0\.0\.1:9 cannot be reached: "):
        async with open_pool(settings(tmp_path, pool="ray:127.0.0.1:9", gpus=None), tmp_path, print):
            pass


@needs_ray
async def test_a_ray_without_gpus_and_more_than_it_has_are_told(tmp_path: Path) -> None:
    import ray

    ray.init(address="local", num_gpus=0, num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        with pytest.raises(Unavailable, match="Ray has no GPU"):
            async with open_pool(settings(tmp_path, gpus=None), tmp_path, print):
                pass
        with pytest.raises(UsageError, match="--gpus 2 asks for more GPUs than Ray has, which are 0"):
            async with open_pool(settings(tmp_path), tmp_path, print):
                pass
        assert ray.is_initialized()
    finally:
        ray.shutdown()
