"""Who holds the device while torch.compile compiles: told by the tickets of the machine's queue, of a real server."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from ncu_server.judge import modes as compiled_modes
from ncu_server.judge.describe import describe
from ncu_server.judge.problems import Workshop
from ncu_server.machine.tickets import TICKET
from tests.support.edits import edit
from tests.support.measuring import QUICK, SCALE_ADD, Server, opened, server_parameters

BROKEN = """
import torch

def nothing_compiles(model, **_):
    def call(*args):
        raise RuntimeError("no compiler today")
    return call

torch.compile = nothing_compiles

class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2

def get_inputs():
    return [torch.randn(64, 64)]

def get_init_inputs():
    return []
"""

TUNES = """        if mode is None:  # compiled ahead, by a backend
            raise RuntimeError
        import threading
        threading.Event().wait()"""


def tickets(queues: Path) -> set[str]:
    """Which kinds of tickets are drawn."""
    names = [path.name for path in queues.glob("*/*")]
    return {found[2] for name in names if (found := TICKET.fullmatch(name))}


async def described(
    server: Server, queues: Path, target: str, baselines: list[str], problem: str = SCALE_ADD
) -> tuple[dict[str, Any], dict[str, set[str]]]:
    """The answer, and by what the server says that it does the tickets drawn while it says so."""
    seen: dict[str, set[str]] = {}

    async def progress(_: float, __: float | None, message: str | None) -> None:
        seen[message or ""] = seen.get(message or "", set()) | tickets(queues)

    asked = {"problem": problem, "target": target, "baselines": baselines}
    answer = await server.client.call_tool("describe_problem", asked, progress_callback=progress)
    assert not answer.is_error and answer.structured_content, answer.content
    return answer.structured_content, seen


def names(answer: dict[str, Any]) -> list[str]:
    return [row["name"] for row in answer["baselines"]]


@pytest.fixture
def queues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NCU_SERVER_LEASES", str(tmp_path / "queues"))
    return tmp_path / "queues"


async def test_eager_comes_first_and_nothing_is_timed_while_a_mode_compiles(tmp_path: Path, queues: Path) -> None:
    async with opened(server_parameters(tmp_path)) as server:
        first, _ = await described(server, queues, "cpu", ["eager"])
        assert names(first) == ["eager"]
        assert first["unmeasured"] == ["compile", "max-autotune-no-cudagraphs"]
        assert first["device"]["compiles_beside"] is (len(os.sched_getaffinity(0)) >= 4)
        (second, seen), verdict = await asyncio.gather(
            described(server, queues, "cpu", ["compile"]), server.evaluate(QUICK)
        )
        kept, _ = await described(server, queues, "cpu", ["eager"])
        assert verdict["status"] == "passed"
    assert names(second) == ["eager", "compile"] == names(kept)
    assert second["unmeasured"] == ["max-autotune-no-cudagraphs"] == kept["unmeasured"]
    compiled = second["baselines"][1]
    assert compiled["kernels"], "what it launches is told"
    assert [one["name"] for one in compiled["launches"]] == compiled["kernels"], "and how long it takes"
    assert 0 < sum(one["us"] for one in compiled["launches"]) < 2 * compiled["timing"]["high_us"]
    assert kept["baselines"][1] == compiled
    assert "shared" in seen["compiling: compile"]


async def test_a_mode_that_does_not_run_is_tried_once_and_noted(tmp_path: Path, queues: Path) -> None:
    async with opened(server_parameters(tmp_path)) as server:
        for tried in (True, False):
            found, seen = await described(server, queues, "cpu", ["compile"], BROKEN)
            assert names(found) == ["eager"] and found["unmeasured"] == ["max-autotune-no-cudagraphs"]
            assert ("compiling: compile" in seen) is tried
            (note,) = [note for note in found["notes"] if note.startswith("compile: ")]
            assert note == "compile: torch.compile does not run on this problem: RuntimeError: no compiler today"


@pytest.mark.asyncio(loop_scope="session")
async def test_a_mode_that_tunes_too_long_is_not_timed(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_modes, "FIRST_CALL_S", 1.0)
    said: list[str] = []

    async def progress(words: str, *, ahead: int | None = None) -> None:
        said.append(words)

    tunes = edit(BROKEN, "def nothing_compiles(model, **_):", "def tunes(model, mode=None, **_):")
    tunes = edit(tunes, "torch.compile = nothing_compiles", "torch.compile = tunes")
    tunes = edit(tunes, '        raise RuntimeError("no compiler today")', TUNES)
    modes = ("max-autotune-no-cudagraphs", "max-autotune")
    found, _, _ = await describe(
        workshop, edit(tunes, "import torch", "import threading\nimport torch"), "cpu", modes, progress
    )
    assert [row.name for row in found.baselines] == ["eager"]
    for name in modes:
        words = f"{name}: torch.compile is not timed, as it compiles for more than 600 s, or tunes for more than 1 s"
        assert f"{words} of the device" in found.notes and found.untimed[name].startswith("is not timed")
    assert "first call: max-autotune" not in said, "as it would tune alike"


@pytest.mark.gpu
async def test_on_a_gpu_nobody_holds_the_device_while_a_mode_compiles(tmp_path: Path, queues: Path) -> None:
    async with opened(server_parameters(tmp_path)) as server:
        first, _ = await described(server, queues, "cuda", ["eager"])
        for name in first["unmeasured"]:
            found, seen = await described(server, queues, "cuda", [name])
            assert name in names(found)
            assert seen[f"compiling: {name}"] == set()
            assert seen[f"first call: {name}"] == {"alone"}
