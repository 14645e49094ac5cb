"""Runs of the agent on a scripted endpoint and the scripted bench."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from kernel_agent import KernelAgent
from kernel_agent.run.events import Event
from kernel_agent.run.types import digest
from kernel_agent.settings import rows
from tests.support.scripted_openai import Say, ScriptedOpenAI, Step
from tests.support.scripted_run import LETTERS, MODEL, ROOT


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    for row in rows():
        monkeypatch.delenv(row.variable, raising=False)


class Mind:
    """Two ideas a round, each kernel faster than the one before."""

    def __init__(self) -> None:
        self.kernels = 0
        self.words = (digest(n).translate(LETTERS) for n in count())

    def __call__(self, body: dict[str, Any]) -> Step:
        asked = body["messages"][1]["content"]
        if wanted := re.search(r"^Propose (?:up to (\d+) ideas|one idea)", asked, re.MULTILINE):
            titles = [f"try {next(self.words)} instead" for _ in range(int(wanted[1] or 1))]
            return Say(json.dumps([{"title": title, "transformation": title} for title in titles]))
        self.kernels += 1
        return Say(f"```python\n# speed: {2 + self.kernels}\nclass ModelNew(Model):\n    pass\n```")


async def run(
    tmp_path: Path,
    server: ScriptedOpenAI,
    seen: list[Event] | Callable[[Event], None] | None = None,
    code: str = MODEL,
    **given: Any,
) -> dict[str, Any]:
    """Start or resume the run in `tmp_path`; `seen` gets its events."""
    bench = f"python {ROOT / 'tests' / 'support' / 'scripted_bench.py'} --log {tmp_path / 'log'}"
    settings = {"provider": "custom", "model_name": "tiny", "base_url": server.url, "mcp_server_path": bench}
    settings |= {"branching_factor": 2, "implementations_per_idea": 1, "retrieval": "lexical", "seeds": False}
    settings |= {"experience": False} | given
    events: list[Event] = []
    observe = seen if callable(seen) else (events if seen is None else seen).append
    agent = KernelAgent(**settings, observe=observe)
    directory = tmp_path / "run"
    work = agent.resume(directory) if directory.exists() else agent.generate_kernel(code, run_directory=directory)
    return (await work)[1]
