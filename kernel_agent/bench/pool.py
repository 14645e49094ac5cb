"""Which servers measure a run: by its settings, one for now."""

from __future__ import annotations

from pathlib import Path

from kernel_agent.bench.client import BenchClient
from kernel_agent.interfaces import OnNotice
from kernel_agent.settings import Settings


def open_pool(settings: Settings, directory: Path, on_notice: OnNotice) -> BenchClient:
    """The server that the settings name, used as an async context manager; it logs to `directory`."""
    return BenchClient(
        settings.mcp_server_path,
        directory,
        settings.evaluation_timeout_s,
        on_notice,
        settings.ncu_server_token,
    )
