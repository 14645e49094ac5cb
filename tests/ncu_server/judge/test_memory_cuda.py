"""Memory of a GPU as it is planned, taken and given back (`-m gpu`); a smaller card is played by another process."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from benchmarks.kernelbench_sizes import Memory, card_of
from ncu_server.errors import Code, Refusal
from ncu_server.judge import room
from ncu_server.judge.candidate import EvaluateRequest
from ncu_server.judge.evaluate import evaluate
from ncu_server.judge.memory_plan import GIB, PROCESS_BYTES, SLACK_BYTES
from ncu_server.judge.problems import Workshop
from ncu_server.wire.evaluation import EvaluateResult
from tests.support.cuda_kernels import GELU, LIGHT, POOLING
from tests.support.edits import edit
from tests.support.measuring import SCALE_ADD

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.gpu]

LARGE = edit(SCALE_ADD, "[torch.randn(64, 256), torch.randn(64, 256)]", "[torch.randn(1 << 20, 256) for _ in range(2)]")
"""2 GiB of inputs, 1 GiB of output."""
WORKING, SMALL_CARD, CONTEXTS = 3 * GIB, 6.0, 3 * PROCESS_BYTES
POINTWISE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x)

def get_inputs():
    return [torch.rand(4096, 1 << 17)]
"""
"""2 GiB of inputs, as much of output."""
POOL = """
import torch

class Model(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.pool = torch.nn.AvgPool2d(size)

    def forward(self, x):
        return self.pool(x)

def get_inputs():
    return [torch.rand(32, 32, 1024, 1024)]

def get_init_inputs():
    return [11]
"""
"""4 GiB of inputs, 34 MiB of output."""
POOL_KERNEL = edit(POOLING, "def forward", "def __init__(self, size):\n        super().__init__()\n\n    def forward")
LAST = "out.view(-1)[-1] += 0.01\n        return out"
"""One element is wrong, in the last slice."""
BUFFER = """if not hasattr(self, "out"):
            self.out = torch.empty_like(x)
        out = self.out"""
LEAN = {"gelu": (POINTWISE, GELU, 4 * GIB), "pooling": (POOL, POOL_KERNEL, 4 * GIB + (34 << 20))}
"""A problem, its kernel, and what one call takes."""
TAKES = "self.kept = [torch.empty(1 << 30, dtype=torch.uint8, device='cuda') for _ in range(1 << 10)]"
HOG = edit(LIGHT, "return out", f"{TAKES}\n        return out")
"""Its call fails for want of memory."""
GRABS = """for _ in range(1 << 10):
            try:
                self.kept = [*getattr(self, "kept", []), torch.empty(1 << 30, dtype=torch.uint8, device="cuda")]
            except torch.OutOfMemoryError:
                break"""
QUIET_HOG = edit(LIGHT, "return out", f"{GRABS}\n        return out")
"""Its call comes to its end, and nobody else's does."""


@pytest_asyncio.fixture(loop_scope="session")
async def workshop(tmp_path: Path) -> AsyncIterator[Workshop]:
    made = Workshop(tmp_path)
    yield made
    made.close()


async def quiet(message: str, *, ahead: int | None = None) -> None:
    pass


async def judged(workshop: Workshop, candidate: str = LIGHT, problem: str = LARGE) -> EvaluateResult:
    return await evaluate(workshop, EvaluateRequest(candidate, problem, "cuda", (), False, 120.0), quiet)


async def test_full_judging_takes_four_calls_at_most(workshop: Workshop) -> None:
    await judged(workshop, LIGHT, SCALE_ADD)  # the device's peaks are measured
    with Memory(workshop.machine.device("cuda").probe.uuid).watched() as memory:
        memory.begin()
        result = await judged(workshop)
    assert (result.status, result.memory_plan) == ("passed", "full"), result.log
    assert memory.peak <= 4 * WORKING + SLACK_BYTES + CONTEXTS


@pytest.mark.parametrize("name", LEAN)
async def test_lean_judging_takes_two_and_a_half_calls_at_most(workshop: Workshop, name: str) -> None:
    problem, kernel, working = LEAN[name]
    await judged(workshop, LIGHT, SCALE_ADD)  # the device's peaks are measured
    uuid = workshop.machine.device("cuda").probe.uuid
    with card_of(2.7 * working / GIB + CONTEXTS / GIB), Memory(uuid).watched() as memory:
        memory.begin()
        result = await judged(workshop, kernel, problem)
        peak = memory.peak
        wrong = await judged(workshop, edit(kernel, "return out", LAST), problem)
        assert (result.status, result.memory_plan) == ("passed", "lean"), result.log
        assert wrong.status == "wrong", wrong.log
        assert max(peak, memory.peak) <= 2.5 * working + CONTEXTS, f"{memory.peak / working:.2f} calls"


async def test_one_buffer_for_all_calls_is_wrong_for_gigabytes_too(workshop: Workshop) -> None:
    result = await judged(workshop, edit(GELU, "out = torch.empty_like(x)", BUFFER), POINTWISE)
    assert (result.status, "memory of an earlier call's" in result.log) == ("wrong", True), result.log


async def test_too_little_for_lean_judging_is_refused_with_the_bytes(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "PATIENCE_S", 0.0)
    with (
        card_of(2.2 * 4 + CONTEXTS / GIB),
        pytest.raises(Refusal, match=r"judging takes \d\S* GiB.* GiB are free") as no,
    ):
        await judged(workshop, GELU, POINTWISE)
    assert no.value.code is Code.NO_ROOM


@pytest.mark.parametrize("hog", [HOG, QUIET_HOG], ids=["fails", "is quiet"])
async def test_a_hog_is_to_blame_whoever_runs_out(workshop: Workshop, hog: str) -> None:
    assert (await judged(workshop, hog)).status == "run_error"
    assert (await judged(workshop)).status == "passed"


async def test_a_call_waits_until_others_give_memory_back(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses, sleep, held = [], asyncio.sleep, contextlib.ExitStack()
    held.enter_context(card_of(SMALL_CARD))

    async def pause(seconds: float) -> None:
        if seconds >= room.FIRST_PAUSE_S:
            pauses.append(seconds)
            held.close()
            return
        await sleep(seconds)

    monkeypatch.setattr(asyncio, "sleep", pause)
    with held:
        result = await judged(workshop)
    assert pauses and result.status == "passed", result.log


async def test_nothing_of_gigabytes_is_held_between_calls(workshop: Workshop) -> None:
    device = workshop.machine.device("cuda")
    async with workshop.problems.prepared(LARGE, device) as prepared:
        for candidate in (LIGHT, edit(LIGHT, "if (i < n)", "if (i < n / 2)")):
            await judged(workshop, candidate)
            assert prepared.held_rooms == 0
            assert not await room.others_hold(prepared), "processes hold their contexts and no more"
