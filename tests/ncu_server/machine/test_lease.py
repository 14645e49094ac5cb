import asyncio
import os
from pathlib import Path

import pytest

from ncu_server.machine.lease import Lease
from ncu_server.machine.machine import Machine, probed
from ncu_server.targets import TARGETS


async def hold(lease: Lease, kind: str, name: str, log: list[str], gate: asyncio.Event) -> None:
    async with lease.alone() if kind == "alone" else lease.shared():
        log.append(f"+{name}")
        await gate.wait()
        log.append(f"-{name}")


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_one_holder_is_alone_and_sharers_are_at_most_the_width() -> None:
    lease, log, gate = Lease(2), [], asyncio.Event()
    tasks = [
        asyncio.create_task(hold(lease, k, n, log, gate))
        for k, n in [("shared", "a"), ("shared", "b"), ("shared", "c"), ("alone", "d")]
    ]
    await settle()
    assert log == ["+a", "+b"]
    gate.set()
    await asyncio.gather(*tasks)
    assert log.index("+d") > log.index("-c") > log.index("+c")


async def test_who_gives_up_waiting_for_any_reason_is_passed_over() -> None:
    lease = Lease(1)

    async def report(_: str, *, ahead: int | None = None) -> None:
        raise ConnectionError("nobody listens")

    async with lease.alone():
        with pytest.raises(ConnectionError):
            async with lease.alone(report):
                raise AssertionError("it is not free")
    async with asyncio.timeout(5), lease.alone():
        pass


async def test_who_waits_is_told_how_many_are_ahead() -> None:
    lease, said = Lease(1), []

    async def report(message: str, *, ahead: int | None = None) -> None:
        said.append((message, ahead))

    async with lease.alone():

        async def wait() -> None:
            async with lease.alone(report):
                pass

        task = asyncio.create_task(wait())
        await settle()
    await task
    assert said == [("queued behind 1", 1)]


async def test_whoever_waits_hears_when_the_queue_before_it_moves() -> None:
    lease, said, log = Lease(1), [], []
    gates = [asyncio.Event() for _ in range(3)]

    async def report(message: str, *, ahead: int | None = None) -> None:
        said.append((message, ahead))

    async def wait() -> None:
        async with lease.alone(report):
            pass

    tasks = [asyncio.create_task(hold(lease, "alone", str(n), log, gate)) for n, gate in enumerate(gates)]
    await settle()
    last = asyncio.create_task(wait())
    await settle()
    tasks[1].cancel()
    for gate in gates:
        await settle()
        gate.set()
    await last
    assert said == [("queued behind 3", 3), ("queued behind 2", 2), ("queued behind 1", 1)]


async def test_a_cancelled_waiter_lets_the_next_one_in() -> None:
    lease, log, gate = Lease(1), [], asyncio.Event()
    first = asyncio.create_task(hold(lease, "alone", "a", log, gate))
    second = asyncio.create_task(hold(lease, "alone", "b", log, gate))
    third = asyncio.create_task(hold(lease, "shared", "c", log, gate))
    await settle()
    second.cancel()
    first.cancel()
    await settle()
    assert log == ["+a", "+c"]
    gate.set()
    await third


async def test_a_turn_that_comes_with_the_cancellation_is_given_back() -> None:
    lease, log, gate = Lease(1), [], asyncio.Event()
    async with lease.alone():
        waiter = asyncio.create_task(hold(lease, "alone", "a", log, gate))
        await settle()
    waiter.cancel()
    await asyncio.gather(waiter, return_exceptions=True)
    async with asyncio.timeout(1), lease.alone():
        assert log == []


async def test_each_gpu_has_a_queue_of_its_own_and_servers_on_the_cpu_share_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues, programs = tmp_path / "queues", tmp_path / "bin"
    programs.mkdir()
    gpus = "printf 'NVIDIA H200, 9.0, GPU-1\\nNVIDIA H200, 9.0, GPU-2\\n'"
    for name, line in (("nvidia-smi", gpus), ("nvcc", "echo release 13.0")):
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o700)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("NCU_SERVER_LEASES", str(queues))
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    used: list[set[str]] = []
    try:
        for uuid in ("GPU-1", "GPU-2"):
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", uuid)
            probed.cache_clear()
            server = Machine(tmp_path / uuid)
            for target in ("cuda", "cpu"):
                async with server.lease(TARGETS[target]).alone():
                    used.append({queue.name for queue in queues.iterdir() if any(queue.iterdir())})
            server.close()
    finally:
        probed.cache_clear()
    assert used == [{"GPU-1"}, {"cpu"}, {"GPU-2"}, {"cpu"}]
