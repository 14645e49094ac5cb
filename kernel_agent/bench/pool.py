"""Which servers measure a run: by its settings, one or many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

from pydantic import SecretStr

from kernel_agent.bench.client import BenchClient
from kernel_agent.bench.connection import Connection
from kernel_agent.bench.local import local_pool
from kernel_agent.bench.member import Member
from kernel_agent.bench.occupancy import Occupancy
from kernel_agent.bench.servers import ServerPool
from kernel_agent.bench.transport import Endpoint, is_address
from kernel_agent.errors import UsageError, meant
from kernel_agent.interfaces import OnNotice, Pool
from kernel_agent.settings import Settings

LOCAL, RAY = "local", "ray"


def open_pool(settings: Settings, directory: Path, on_notice: OnNotice) -> AbstractAsyncContextManager[Pool]:
    """The servers that the settings name, used as an async context manager; they log to `directory`.

    Raises UsageError where the setting `pool` names none.
    """
    if settings.pool == LOCAL:
        return _local(settings, directory, on_notice)
    kind, _, address = settings.pool.partition(":")
    if kind == RAY:
        from kernel_agent.bench.ray_pool import ray_pool

        return ray_pool(settings, address or None, on_notice)
    there = _addresses(settings)
    if len(there) == 1:
        return _one(there[0], settings, directory, on_notice)
    return ServerPool(partial(_members, there, settings, directory, on_notice), on_notice)


def endpoints(settings: Settings) -> list[Endpoint]:
    """Where the servers are that the settings name; of `local` and `ray`, what starts one. Raises UsageError."""
    if settings.pool.partition(":")[0] in (LOCAL, RAY):
        return [Endpoint(settings.mcp_server_path, settings.ncu_server_token)]
    return _addresses(settings)


def _local(settings: Settings, directory: Path, on_notice: OnNotice) -> AbstractAsyncContextManager[Pool]:
    if is_address(settings.mcp_server_path):
        return _one(Endpoint(settings.mcp_server_path, settings.ncu_server_token), settings, directory, on_notice)
    return local_pool(settings, directory, on_notice)


def _one(endpoint: Endpoint, settings: Settings, directory: Path, on_notice: OnNotice) -> BenchClient:
    line = Connection(endpoint, directory, settings.evaluation_timeout_s, on_notice)
    return BenchClient.over(line, settings.evaluation_timeout_s)


def _members(
    there: Sequence[Endpoint],
    settings: Settings,
    directory: Path,
    on_notice: OnNotice,
    on_change: Callable[[], None],
) -> Iterable[Member]:
    for endpoint in there:

        def connect(occupancy: Occupancy, endpoint: Endpoint = endpoint) -> BenchClient:
            line = Connection(endpoint, directory, settings.evaluation_timeout_s, restarts=0)
            return BenchClient.over(line, settings.evaluation_timeout_s, occupancy)

        yield Member(endpoint.path, connect, on_notice, on_change)


def _addresses(settings: Settings) -> list[Endpoint]:
    """The addresses with their tokens. Raises UsageError where there is something else among them, or a number of
    tokens that does not fit."""
    addresses = [part.strip() for part in settings.pool.split(",") if part.strip()]
    wrong = next((part for part in addresses if not is_address(part)), None if addresses else settings.pool)
    if wrong is not None:
        known = (LOCAL, RAY)
        raise UsageError(
            f"The setting `pool` is local, ray, ray:ADDRESS, or http(s) addresses apart by commas, such as "
            f"http://a:8931/mcp,http://b:8931/mcp, and {wrong!r} is none of these.{meant(wrong, known)}"
        )
    token = settings.ncu_server_token.get_secret_value() if settings.ncu_server_token else None
    tokens = token.split(",") if token and len(addresses) > 1 else [token]
    if len(tokens) not in (1, len(addresses)):
        raise UsageError(
            f"NCU_SERVER_TOKEN holds {len(tokens)} tokens for {len(addresses)} addresses: give one for all, "
            "or one for each in their order."
        )
    each = tokens * len(addresses) if len(tokens) == 1 else tokens
    rows = {path: SecretStr(one.strip()) if one else None for path, one in zip(addresses, each, strict=True)}
    return [Endpoint(path, one) for path, one in rows.items()]
