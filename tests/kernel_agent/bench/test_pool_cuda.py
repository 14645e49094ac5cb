"""Pools on real GPUs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kernel_agent.bench.client import BenchClient
from kernel_agent.bench.pool import open_pool
from kernel_agent.interfaces import Stage
from kernel_agent.run.types import Problem, Status
from kernel_agent.settings import load_settings
from tests.support.cuda_kernels import LIGHT
from tests.support.measuring import SCALE_ADD

PROBLEM = Problem("scale_add", SCALE_ADD, "cuda")


def variants(count: int) -> list[str]:
    return [f"{LIGHT}\n# variant {number}\n" for number in range(count)]


@pytest.mark.gpu
async def test_later_candidates_are_built_while_the_first_has_the_device(tmp_path: Path) -> None:
    seen: list[tuple[int, str | None]] = []

    def hear(number: int, stage: Stage) -> None:
        seen.append((number, stage.at))

    async with BenchClient("python -m ncu_server", tmp_path, 300) as bench:
        await bench.describe(PROBLEM, baselines=["eager"])
        found = await asyncio.gather(
            *(
                bench.evaluate(PROBLEM, source, lambda stage, n=number: hear(n, stage))  # type: ignore[misc]
                for number, source in enumerate(variants(4))
            )
        )
        (device,) = bench.devices()
    assert {one.status for one in found} == {Status.PASSED}, [one.log for one in found]
    first = next(number for number, at in seen if at == "device")
    leaves = max(place for place, (number, at) in enumerate(seen) if number == first and at == "device")
    building = [number for number, at in seen[leaves + 1 :] if at == "building"]
    assert not building, "a candidate was still built when the device was free for it"
    assert device.busy_s > 0 and device.uuid and device.host


@pytest.mark.gpu
async def test_a_local_pool_measures_on_every_gpu_by_its_uuid(tmp_path: Path) -> None:
    notices: list[str] = []
    async with open_pool(load_settings(target="cuda"), tmp_path, notices.append) as pool:
        description = await pool.describe(PROBLEM, baselines=["eager"])
        bench = pool.like(description.device)
        found = await asyncio.gather(*(bench.evaluate(PROBLEM, source) for source in variants(8)))
        devices = pool.devices()
    assert {one.status for one in found} == {Status.PASSED}, [one.log for one in found]
    uuids = {str(one.provenance["uuid"]) for one in found}
    assert uuids == {device.uuid for device in devices} and all(uuid.startswith("GPU-") for uuid in uuids)
    assert not [notice for notice in notices if "lost" in notice]
