"""Pools of measuring servers: real MCP servers over stdio and HTTP, some of which are killed."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from kernel_agent import KernelAgent
from kernel_agent.bench.client import BenchClient
from kernel_agent.bench.member import Member
from kernel_agent.bench.pool import open_pool
from kernel_agent.bench.servers import MOST, ServerPool
from kernel_agent.errors import KernelAgentError, ServerError, Unavailable, UsageError
from kernel_agent.interfaces import Pool, Stage
from kernel_agent.run.events import Event, TrialJudged
from kernel_agent.run.journal import read
from kernel_agent.run.types import Problem, Status
from kernel_agent.settings import Settings, load_settings
from tests.support.http_benches import HttpBench, free_port, http_benches
from tests.support.http_server import served, until
from tests.support.scripted_run import BENCH, DESCRIPTION, MODEL, PROBLEM

OTHER = Problem("other", PROBLEM.source, "cpu")


def addresses(*benches: HttpBench, **given: Any) -> Settings:
    return load_settings(pool=",".join(bench.url for bench in benches), **given)


def local(directory: Path, *options: str, **given: Any) -> Settings:
    server = shlex.join(["python", str(BENCH), "--log", str(directory / "log"), *options])
    return load_settings(mcp_server_path=server, **given)


def entries(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


@asynccontextmanager
async def opened(settings: Settings, directory: Path, notices: list[str]) -> AsyncIterator[Pool]:
    async with asyncio.timeout(120), open_pool(settings, directory, notices.append) as pool:
        yield pool


async def speeds(pool: Any, count: int, problem: Problem = PROBLEM) -> list[float | None]:
    found = await asyncio.gather(*(pool.evaluate(problem, f"# speed: {n}") for n in range(1, count + 1)))
    return [evaluation.speedup for evaluation in found]


async def test_calls_are_shared_by_two_servers_and_a_winner_is_judged_on_one(tmp_path: Path) -> None:
    notices: list[str] = []
    with http_benches(tmp_path, ("--delay", "0.02"), ("--delay", "0.02")) as (a, b):
        async with opened(addresses(a, b), tmp_path, notices) as pool:
            assert await pool.available() == {"cpu"}
            description = await pool.describe(PROBLEM)
            assert description == DESCRIPTION
            bench = pool.like(description.device)
            assert await speeds(bench, 12) == list(range(1, 13))
            for _ in range(4):
                assert (await bench.confirm(PROBLEM, "# speed: 2", ["eager"])).speedup == 2
                await bench.verify(PROBLEM, "# speed: 2")
        counts = [Counter(entry["fresh"] for entry in entries(one.log)) for one in (a, b)]
        verified = [len(Path(f"{one.log}.verified").read_text().split()) for one in (a, b) if count_verified(one)]
    assert sorted(count[False] for count in counts) == [6, 6]
    assert sorted(count[True] for count in counts) == [0, 4] and verified == [4]
    assert not notices


def count_verified(bench: HttpBench) -> bool:
    return Path(f"{bench.log}.verified").exists()


async def test_a_call_beyond_what_servers_take_at_once_waits_for_the_first_room(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    with http_benches(tmp_path, *[("--rendezvous", str(gate))] * 2) as (a, b):
        async with opened(addresses(a, b), tmp_path, []) as pool:
            stages: list[Stage] = []
            work = [
                asyncio.create_task(pool.evaluate(PROBLEM, f"# speed: {n}", stages.append))
                for n in range(1, 2 * MOST + 4)
            ]
            await until(lambda: any(stage.ahead == 3 and "pool" in stage.message for stage in stages), 60)
            gate.unlink()
            assert len(await asyncio.gather(*work)) == 2 * MOST + 3
        assert len(entries(a.log)) + len(entries(b.log)) == 2 * MOST + 3


async def test_a_server_that_is_killed_is_stood_in_for_and_comes_back(tmp_path: Path) -> None:
    notices: list[str] = []
    gate = tmp_path / "gate"
    gate.touch()
    with http_benches(tmp_path, ("--rendezvous", str(gate)), ("--rendezvous", str(gate))) as (a, b):
        async with opened(addresses(a, b), tmp_path, notices) as pool:
            await pool.describe(PROBLEM)
            await pool.describe(OTHER)
            timing: list[Stage] = []
            work = [asyncio.create_task(pool.evaluate(PROBLEM, f"# speed: {n}", timing.append)) for n in range(1, 9)]
            await until(lambda: sum(stage.message == "timing" for stage in timing) == 2, 60)
            a.kill()
            gate.unlink()
            assert [(await one).speedup for one in work] == list(range(1, 9))
            assert len(entries(b.log)) == 8 and not entries(a.log)
            assert len(notices) == 1 and a.url in notices[0] and "is lost" in notices[0]
            a.start()
            await until(lambda: len(notices) == 2, 60)
            assert notices[1] == f"The measuring server {a.url} is back."
            await speeds(pool, 12)
        assert entries(a.log)


async def test_a_server_killed_while_it_is_idle_is_found_out_by_the_next_call(tmp_path: Path) -> None:
    notices: list[str] = []
    with http_benches(tmp_path, (), ()) as (a, b):
        async with opened(addresses(a, b), tmp_path, notices) as pool:
            a.kill()
            assert await speeds(pool, 6) == [1, 2, 3, 4, 5, 6]
            assert [a.url in notice for notice in notices] == [True]
        assert len(entries(b.log)) == 6


async def test_all_servers_lost_is_one_sentence(tmp_path: Path) -> None:
    with http_benches(tmp_path, (), ()) as (a, b):
        async with opened(addresses(a, b), tmp_path, []) as pool:
            a.kill()
            b.kill()
            with pytest.raises(ServerError, match=r"^All measuring servers of the pool are lost \(.*resume") as fault:
                await pool.evaluate(PROBLEM, "# speed: 2")
    assert a.url in str(fault.value) and b.url in str(fault.value)


async def test_a_call_that_kills_servers_is_tried_on_three(tmp_path: Path) -> None:
    options = [("--die-at", "1")] * 4
    with http_benches(tmp_path, *options) as benches:
        async with opened(addresses(*benches), tmp_path, []) as pool:
            with pytest.raises(ServerError, match="lost with 3 measuring servers"):
                await pool.evaluate(PROBLEM, "# speed: 2")
        assert sum(Path(f"{bench.log}.died").exists() for bench in benches) == 3


async def test_an_address_where_nobody_answers_is_told_and_joins_later(tmp_path: Path) -> None:
    notices: list[str] = []
    late = HttpBench(tmp_path)
    with http_benches(tmp_path, ()) as (there,):
        async with opened(addresses(late, there), tmp_path, notices) as pool:
            assert (await pool.evaluate(PROBLEM, "# speed: 2")).speedup == 2
            begins = f"The pool begins without the measuring server {late.url}"
            assert [notice.partition(": ")[0] for notice in notices] == [begins]
            try:
                late.start()
                await until(lambda: len(notices) == 2, 60)
            finally:
                late.kill()


async def test_a_pool_of_which_nobody_answers_is_one_sentence(tmp_path: Path) -> None:
    nowhere = ",".join(f"http://127.0.0.1:{free_port()}/mcp" for _ in range(2))
    with pytest.raises(ServerError, match=r"None of the 2 measuring servers of the pool answers: .*does not answer"):
        async with opened(load_settings(pool=nowhere), tmp_path, []):
            pass


async def test_a_wrong_token_for_one_of_two_is_told_and_the_other_measures(tmp_path: Path) -> None:
    notices: list[str] = []
    with served(tmp_path) as real, http_benches(tmp_path, ()) as (scripted,):
        settings = load_settings(
            pool=f"{real.url}, {scripted.url}", ncu_server_token=SecretStr("wrong-token,any-token")
        )
        async with opened(settings, tmp_path, notices) as pool:
            assert (await pool.evaluate(PROBLEM, "# speed: 2")).speedup == 2
    assert len(notices) == 1 and real.url in notices[0] and "NCU_SERVER_TOKEN" in notices[0]


async def test_unlike_cards_are_told_once_and_a_run_stays_on_the_first(tmp_path: Path) -> None:
    notices: list[str] = []
    with http_benches(tmp_path, ("--card", "A100"), ("--card", "H200"), ("--card", "H200")) as benches:
        async with opened(addresses(*benches), tmp_path, notices) as pool:
            device = (await pool.describe(PROBLEM)).device
            await speeds(pool.like(device), 6)
            pool.like(device)
            with pytest.raises(Unavailable, match="measured on scripted, and the pool has no such device"):
                pool.like(DESCRIPTION.device)
        judged = {bench.options[1] for bench in benches if entries(bench.log)}
    assert judged == {device.name}
    assert notices == [
        "The devices of the pool are not alike (1 of A100, 2 of H200): each run stays on the model it began on."
    ]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"pool": "lokal"}, "'lokal' is none of these. Did you mean local?"),
        ({"pool": "http://a/mcp,b:8931"}, "'b:8931' is none of these"),
        ({"pool": ","}, "',' is none of these"),
        (
            {"pool": "http://a/mcp,http://b/mcp", "ncu_server_token": SecretStr("a,b,c")},
            "NCU_SERVER_TOKEN holds 3 tokens for 2 addresses",
        ),
    ],
)
def test_a_pool_that_is_none_is_told(tmp_path: Path, given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as fault:
        open_pool(load_settings(**given), tmp_path, print)
    assert sentence in str(fault.value)


@pytest.mark.parametrize("count", [0, -1])
def test_a_pool_of_no_gpu_is_no_pool(count: int) -> None:
    with pytest.raises(UsageError, match="`gpus` cannot be used"):
        load_settings(gpus=count)


async def test_a_local_pool_has_a_server_for_each_gpu_that_sees_it_alone(tmp_path: Path) -> None:
    notices: list[str] = []
    async with opened(local(tmp_path, "--gpus", "3", "--busy", "1", "--delay", "0.02"), tmp_path, notices) as pool:
        await speeds(pool, 8)
    assert {entry["gpu"] for entry in entries(tmp_path / "log")} == {"GPU-1", "GPU-2"}
    assert notices == ["What others are at work on is passed over: GPU 0, scripted (in use)."]


@pytest.mark.parametrize(
    ("options", "given", "gpus"),
    [
        (("--gpus", "3"), {"target": "cpu"}, {None}),
        (("--gpus", "1"), {}, {None}),
        ((), {}, {None}),
        (("--gpus", "3"), {"gpus": 1}, {None}),
        (("--gpus", "3", "--busy", "2"), {}, {"GPU-2"}),
        (("--gpus", "3", "--busy", "3"), {"gpus": 2}, {"GPU-0", "GPU-1"}),
    ],
)
async def test_a_local_pool_takes_the_first_gpus_that_are_free(
    tmp_path: Path, options: tuple[str, ...], given: dict[str, Any], gpus: set[str | None]
) -> None:
    notices: list[str] = []
    async with opened(local(tmp_path, *options, **given), tmp_path, notices) as pool:
        await speeds(pool, 6)
    assert {entry["gpu"] for entry in entries(tmp_path / "log")} == gpus
    busy = int(options[3]) if "--busy" in options else 0
    assert len(notices) == (busy > 0) and (busy < 3 or "every GPU" in notices[0])


async def test_more_gpus_than_there_are_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--gpus 4 asks for more GPUs than are visible here, which are 3"):
        async with opened(local(tmp_path, "--gpus", "3", gpus=4), tmp_path, []):
            pass


async def test_a_local_server_that_dies_is_started_again_beside_the_others(tmp_path: Path) -> None:
    notices: list[str] = []
    settings = local(tmp_path, "--gpus", "2", "--die-at", "2", "--behave", "die once")
    async with opened(settings, tmp_path, notices) as pool:
        assert await speeds(pool, 8) == list(range(1, 9))
        await until(lambda: len(notices) == 2, 60)
        found = await asyncio.gather(*(pool.evaluate(PROBLEM, "# verdict: wrong") for _ in range(2)))
    assert {evaluation.status for evaluation in found} == {Status.WRONG}
    assert "is lost, its calls go to the others: it died" in notices[0] and notices[1].endswith("is back.")


async def test_a_refusal_is_raised_and_loses_no_server(tmp_path: Path) -> None:
    async with opened(local(tmp_path, "--gpus", "2"), tmp_path, notices := []) as pool:
        for code in ("NO_DEVICE", "INTERNAL"):
            with pytest.raises(KernelAgentError, match="so it was ordered"):
                await pool.evaluate(PROBLEM, f"# refuse: {code}")
    assert not notices


async def test_a_pool_that_is_left_while_calls_are_under_way_ends_its_servers(tmp_path: Path) -> None:
    lost: list[str] = []

    def members(on_change: Any) -> list[Member]:
        server = shlex.join(["python", str(BENCH), "--log", str(tmp_path / "log"), "--delay", "600"])
        return [
            Member(name, lambda _: BenchClient(server, tmp_path), lost.append, on_change)
            for name in ("first", "second")
        ]

    timing: list[Stage] = []
    async with ServerPool(members, lost.append) as pool:
        work = [asyncio.create_task(pool.evaluate(one, "# speed: 2", timing.append)) for one in (PROBLEM, OTHER)]
        await until(lambda: sum(stage.message == "timing" for stage in timing) == 2, 60)
    for one in work:
        with pytest.raises(ServerError):
            await one
    assert not lost


async def test_a_run_goes_on_while_one_of_two_servers_is_killed(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    with http_benches(tmp_path, ("--delay", "0.02"), ("--delay", "0.02")) as (a, b):

        def observe(event: Event) -> None:
            if isinstance(event, TrialJudged) and entries(a.log):
                a.kill()

        agent = KernelAgent(
            pool=f"{a.url},{b.url}",
            target="cpu",
            provider="templates",
            num_rounds=2,
            retrieval="lexical",
            runs_dir=tmp_path / "runs",
            observe=observe,
        )
        _, results = await agent.generate_kernel(MODEL, name="relu")
        assert a.process is None and entries(b.log)
    run = read(Path(results["run_directory"]))
    assert results["status"] == "improved" and len(run.evaluations) == len(
        {trial.source_id for trial in run.trials.values() if trial.idea}
    )
    assert [device["card"] for device in results["devices"]] == ["scripted"]
