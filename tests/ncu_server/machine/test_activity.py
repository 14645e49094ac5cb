"""What a call is at, as the lease and the builds say it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ncu_server.machine.activity import call, during
from ncu_server.machine.lease import Lease
from ncu_server.machine.tickets import ROOT_VARIABLE, Tickets


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lease:
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path / "queues"))
    return Lease(2, Tickets("GPU-1"))


async def test_a_call_is_at_what_says_most_of_the_device() -> None:
    with call() as activity:
        assert activity.stage == "preparing"
        with during("building"):
            with during("waiting"):
                assert activity.stage == "building"
            with during("device"):
                assert activity.stage == "device"
            assert activity.stage == "building"
        assert activity.stage == "preparing"


async def test_whoever_has_the_device_alone_is_on_it_and_others_wait(device: Lease) -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    async def first() -> str:
        with call() as activity:
            async with device.alone():
                entered.set()
                await leave.wait()
                return activity.stage

    async def second() -> tuple[str, str]:
        with call() as activity:
            work = asyncio.create_task(held_once())
            await activity.changed.wait()
            stage = activity.stage
            leave.set()
            await work
            return stage, activity.stage

    async def held_once() -> None:
        async with device.alone():
            pass

    holder = asyncio.create_task(first())
    await entered.wait()
    assert await second() == ("waiting", "preparing")
    assert await holder == "device"


async def test_sharers_and_cores_are_not_the_device(device: Lease) -> None:
    with call() as activity:
        async with device.shared():
            assert activity.stage == "preparing"
        async with Lease(1).alone():
            assert activity.stage == "preparing"


async def test_what_is_done_for_no_call_is_told_to_none(device: Lease) -> None:
    async with device.alone():
        with call() as activity:
            assert activity.stage == "preparing"
    with during("building"):
        pass
