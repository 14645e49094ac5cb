"""A server for each GPU of this machine; one where there is one GPU or none."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from kernel_agent.bench.client import BenchClient
from kernel_agent.bench.connection import Connection
from kernel_agent.bench.environment import Gpu
from kernel_agent.bench.member import Member
from kernel_agent.bench.occupancy import Occupancy
from kernel_agent.bench.servers import ServerPool
from kernel_agent.bench.transport import Endpoint
from kernel_agent.errors import UsageError
from kernel_agent.interfaces import OnNotice, Pool, ignore
from kernel_agent.run.database import LOG
from kernel_agent.settings import Settings

VISIBLE = "CUDA_VISIBLE_DEVICES"


@asynccontextmanager
async def local_pool(settings: Settings, directory: Path, on_notice: OnNotice) -> AsyncIterator[Pool]:
    """The servers of this machine; they log to `directory`.

    The first server says which GPUs there are, and is the only one where it sees no second. Else it makes way for one
    a GPU, each of which sees its own alone. Raises UsageError where there are fewer than the setting `gpus`.
    """
    start = partial(_start, settings, directory)
    async with start(0, None, on_notice, 1) as first:
        seen = () if settings.target == "cpu" else (await first.machine()).gpus
        chosen = _chosen(seen, settings.gpus, on_notice) if settings.target != "cpu" else []
        if chosen == list(seen[:1]):
            yield first
            return
    if len(chosen) == 1:
        async with start(0, chosen[0], on_notice, 1) as only:
            yield only
        return
    async with ServerPool(partial(_members, chosen, start, on_notice), on_notice) as pool:
        yield pool


def _start(
    settings: Settings,
    directory: Path,
    number: int,
    gpu: Gpu | None,
    on_notice: OnNotice,
    restarts: int,
    occupancy: Occupancy | None = None,
) -> BenchClient:
    around = {VISIBLE: gpu.uuid or str(gpu.index)} if gpu else {}
    log = f"server-{number + 1}.log" if number else LOG
    endpoint = Endpoint(settings.mcp_server_path, None, around, log)
    line = Connection(endpoint, directory, settings.evaluation_timeout_s, on_notice, restarts)
    return BenchClient.over(line, settings.evaluation_timeout_s, occupancy)


def _members(
    gpus: Sequence[Gpu],
    start: Callable[..., BenchClient],
    on_notice: OnNotice,
    on_change: Callable[[], None],
) -> Iterable[Member]:
    for number, gpu in enumerate(gpus):
        yield Member(f"of {_title(gpu)}", partial(start, number, gpu, ignore, 0), on_notice, on_change)


def _chosen(seen: Sequence[Gpu], most: int | None, on_notice: OnNotice) -> list[Gpu]:
    """The first `most` that nobody else is at work on; where all are busy, the first of all."""
    if most is not None and most > len(seen):
        raise UsageError(f"--gpus {most} asks for more GPUs than are visible here, which are {len(seen)}.")
    free, busy = [gpu for gpu in seen if not gpu.busy], [gpu for gpu in seen if gpu.busy]
    words = ", ".join(f"{_title(gpu)} ({gpu.busy})" for gpu in busy)
    if busy and free:
        on_notice(f"What others are at work on is passed over: {words}.")
    elif busy:
        on_notice(f"Others are at work on every GPU, so times may suffer: {words}.")
    return (free or busy)[:most]


def _title(gpu: Gpu) -> str:
    return f"GPU {gpu.index}, {gpu.name}"
