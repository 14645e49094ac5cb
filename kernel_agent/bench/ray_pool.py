"""Servers in Ray actors, one for each GPU of a cluster, or of a Ray that is started here.

Each actor has one GPU to itself and a server as its child. There are never more actors than GPUs: one more, killed
while it is pending, starves the one that restarts (Ray 2.60).
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from typing import Any, Self

from kernel_agent import errors
from kernel_agent.bench.client import BenchClient
from kernel_agent.bench.connection import START_S
from kernel_agent.bench.member import Member
from kernel_agent.bench.occupancy import Occupancy
from kernel_agent.bench.ray_actor import Fault, ServerActor
from kernel_agent.bench.servers import ServerPool
from kernel_agent.bench.transport import python_path
from kernel_agent.errors import KernelAgentError, ServerError, Unavailable, UsageError
from kernel_agent.interfaces import OnNotice, OnProgress, Pool, Stage, ignore
from kernel_agent.settings import Settings, secret_variables

ADDRESS = "RAY_ADDRESS"
REACH_S = 10.0
"""Seconds to reach an address."""
CLOSE_S, BEYOND_S = 10.0, 120.0
"""Seconds that an actor has to end its server, and beyond what its server gives a call."""
SECRET = re.compile(r"(?!RAY_).*(KEY|TOKEN|SECRET|PASSWORD).*", re.IGNORECASE)
"""Variables that a Ray that is started here does not get, Ray's own apart: it hands all on to every worker."""
USAGE, MODE = "RAY_USAGE_STATS_ENABLED", "RAY_AUTH_MODE"


def ray_pool(settings: Settings, address: str | None, on_notice: OnNotice) -> AbstractAsyncContextManager[Pool]:
    """The pool of the Ray at an address, by default that of RAY_ADDRESS, else of one that is started here.

    Raises Unavailable where Ray is not installed.
    """
    if find_spec("ray") is None:
        raise Unavailable("The pool `ray` needs Ray, which is not installed here: pip install 'kernel-agent[ray]'.")
    return _pool(settings, address or os.environ.get(ADDRESS), on_notice)


@asynccontextmanager
async def _pool(settings: Settings, address: str | None, on_notice: OnNotice) -> AsyncIterator[Pool]:
    import ray

    with _reached(settings, address):
        count = _count(settings, ray.available_resources(), ray.cluster_resources())
        actors = [_actor(settings) for _ in range(count)]
        try:
            async with ServerPool(partial(_members, actors, settings, on_notice), on_notice) as pool:
                yield pool
        finally:
            for actor in actors:
                ray.kill(actor)


@contextmanager
def _reached(settings: Settings, address: str | None) -> Iterator[None]:
    """Ray, connected: as it is where this process has it already."""
    import ray

    if ray.is_initialized():
        yield
        return
    how: dict[str, Any] = {"address": address} if address else {"address": "local", "include_dashboard": False}
    if not address and settings.gpus is not None:
        how["num_gpus"] = settings.gpus
    try:
        if address:
            _require_listener(address)
        with _cleaned(), _signals_kept():
            ray.init(log_to_driver=False, logging_level="ERROR", **how)
    except (OSError, RuntimeError, ValueError) as fault:  # ConnectionError is an OSError
        first = next(iter(str(fault).strip().splitlines()), type(fault).__name__)
        where = f"at {address} cannot be reached" if address else "cannot be started"
        token = "; where it wants a token, set RAY_AUTH_MODE=token" if address and not os.environ.get(MODE) else ""
        raise ServerError(f"Ray {where}: {first.rstrip('.')}{token}.") from None
    try:
        yield
    finally:
        ray.shutdown()


def _require_listener(address: str) -> None:
    """Raises OSError where nobody listens at an address, which Ray itself tries for minutes."""
    if found := re.fullmatch(r"(?:ray://)?\[?([^/\]]+)\]?:(\d+)", address):
        socket.create_connection((found[1], int(found[2])), REACH_S).close()


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Ray puts a handler of its own in the place of whoever stops a run in order."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _cleaned() -> Iterator[None]:
    """This process's environment without secrets."""
    held = {name: os.environ.pop(name) for name in list(os.environ) if _is_secret(name)}
    os.environ.setdefault(USAGE, "0")  # nobody has agreed to reports on their use
    try:
        yield
    finally:
        os.environ.update(held)


def _is_secret(name: str) -> bool:
    return name in secret_variables() or SECRET.fullmatch(name) is not None


def _count(settings: Settings, free: dict[str, float], there: dict[str, float]) -> int:
    """How many actors there will be. Raises Unavailable where no GPU is left for one."""
    gpus, left = int(there.get("GPU", 0)), int(free.get("GPU", 0))
    if settings.gpus is not None and settings.gpus > gpus:
        raise UsageError(f"--gpus {settings.gpus} asks for more GPUs than Ray has, which are {gpus}.")
    if not gpus:
        raise Unavailable("Ray has no GPU: start it on machines that have some, or take the pool `local`.")
    if not left:
        raise Unavailable(f"All GPUs of Ray ({gpus}) are in use: wait until one is free.")
    return min(settings.gpus or left, left)


def _actor(settings: Settings) -> Any:
    import ray

    around = dict.fromkeys([*secret_variables(), *filter(_is_secret, os.environ)], "")
    remote = ray.remote(ServerActor).options(
        num_gpus=1,
        num_cpus=0,
        max_restarts=-1,
        max_task_retries=0,
        runtime_env={"env_vars": around | {"PYTHONPATH": python_path()}},
    )
    return remote.remote(settings.mcp_server_path, settings.evaluation_timeout_s)


def _members(
    actors: Sequence[Any], settings: Settings, on_notice: OnNotice, on_change: Callable[[], None]
) -> Iterable[Member]:
    for number, actor in enumerate(actors, 1):

        def connect(occupancy: Occupancy, actor: Any = actor) -> BenchClient:
            line = RayLine(actor, settings.evaluation_timeout_s)
            return BenchClient.over(line, settings.evaluation_timeout_s, occupancy)

        yield Member(f"of Ray's actor {number}", connect, on_notice, on_change)


class RayLine:
    """The server of an actor. An actor that gives no answer in time is killed, and started anew by Ray."""

    def __init__(self, actor: Any, timeout_s: float) -> None:
        self._actor, self._timeout_s = actor, timeout_s
        self._in_flight_s = 0.0
        self._lost = False

    async def __aenter__(self) -> Self:
        with self._watched():
            async with asyncio.timeout(START_S + 60):
                _raise(await self._actor.open.remote())
        return self

    async def __aexit__(self, *_: object) -> None:
        import ray

        if not self._lost:
            self._lost = True
            with suppress(ray.exceptions.RayError, TimeoutError):  # it may be dead already
                async with asyncio.timeout(CLOSE_S):
                    await self._actor.close.remote()

    @property
    def is_lost(self) -> bool:
        """Whether no server will answer any more."""
        return self._lost

    async def call(
        self,
        tool: str,
        arguments: dict[str, Any],
        on_progress: OnProgress = ignore,
        patience_s: float | None = None,
        whole: bool = False,
    ) -> dict[str, Any]:
        """A tool's structured answer."""
        patience = patience_s or self._timeout_s
        self._in_flight_s += patience
        try:
            with self._watched():
                async with asyncio.timeout(self._in_flight_s + patience + BEYOND_S):
                    stream = self._actor.call.options(num_returns="streaming")
                    async for reference in stream.remote(tool, arguments, patience_s, whole):
                        said = await reference
                        if not isinstance(said, Stage):
                            return self._answer(said)
                        on_progress(said)
            raise ServerError(f"Ray ended the call {tool} without an answer.")
        finally:
            self._in_flight_s -= patience

    async def resource(self, uri: str | None) -> Any:
        """The JSON of a resource; None where there is none."""
        if uri is None:
            return None
        with self._watched():
            found, fault = await self._actor.resource.remote(uri)
        return found if fault is None else self._answer(fault)

    def _answer(self, said: Fault | dict[str, Any]) -> dict[str, Any]:
        if isinstance(said, Fault):
            self._lost = self._lost or said.lost
            _raise(said)
        assert isinstance(said, dict), "a fault has been raised"
        return said

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """An actor that dies, or does not answer in time and is killed, is a lost server."""
        import ray

        try:
            yield
        except ray.exceptions.RayError as fault:
            self._lost = True
            raise ServerError(f"it died: {_first(fault)}.") from None
        except TimeoutError:
            self._lost = True
            ray.kill(self._actor, no_restart=False)
            raise ServerError("it gave no answer, and was killed.") from None


def _first(fault: Exception) -> str:
    return next((line.strip().rstrip(".") for line in str(fault).splitlines() if line.strip()), type(fault).__name__)


def _raise(fault: Fault | None) -> None:
    if fault is not None:
        kind: type[KernelAgentError] = getattr(errors, fault.kind)
        raise kind(fault.sentence)
