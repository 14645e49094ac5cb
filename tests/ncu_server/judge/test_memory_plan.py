"""How a problem is judged with the memory that is free: in full, lean, or not at all, and when a call waits."""

from dataclasses import replace

import pytest

from ncu_server.errors import Code, Refusal
from ncu_server.judge import memory_plan, room
from ncu_server.judge.candidate import EvaluateRequest
from ncu_server.judge.evaluate import evaluate
from ncu_server.judge.memory_plan import (
    GIB,
    PROCESS_BYTES,
    SLACK_BYTES,
    Demand,
    Exhaustion,
    MemoryPlan,
    is_candidates,
    plan,
    tightest,
)
from ncu_server.judge.problem import PreparedProblem
from ncu_server.judge.problems import Workshop
from ncu_server.judge.room import NoRoom, patiently
from ncu_server.worker.answers import Room
from tests.support.edits import edit
from tests.support.measuring import QUICK, SCALE_ADD

GELU = Demand(inputs=6 * GIB, outputs=6 * GIB, parameters=0, working=12 * GIB, sliceable=True)
POOL = Demand(inputs=16 * GIB, outputs=GIB // 8, parameters=0, working=16 * GIB + GIB // 8, sliceable=True)
SPREAD = Demand(inputs=GIB, outputs=9 * GIB, parameters=0, working=10 * GIB, sliceable=True)
SMALL = Demand(inputs=GIB // 4, outputs=GIB // 4, parameters=0, working=GIB // 2, sliceable=True)
LAYER = Demand(inputs=GIB // 64, outputs=GIB // 64, parameters=4 * GIB, working=4 * GIB + GIB // 32, sliceable=True)
WHOLE = replace(GELU, sliceable=False)
CONTEXTS = 3 * PROCESS_BYTES


@pytest.mark.parametrize(("demand", "held"), [(GELU, 0), (SMALL, 3 * GIB // 2), (LAYER, 3 * GIB // 32)])
def test_judging_takes_four_calls_and_what_stays_of_two_small_input_sets(demand: Demand, held: int) -> None:
    pieces = min(SLACK_BYTES, demand.working)
    found = plan(4 * demand.working + held + pieces + CONTEXTS, demand)
    assert (found.mode, found.needed) == ("full", 4 * demand.working + held + pieces + CONTEXTS)
    assert found.allowed == 2 * demand.working


@pytest.mark.parametrize("demand", [GELU, POOL, SPREAD])
def test_lean_judging_takes_two_and_a_half_calls_at_most(demand: Demand) -> None:
    found = plan(5 * demand.working // 2 + CONTEXTS, demand)
    assert found.mode == "lean" and found.needed <= 5 * demand.working // 2 + CONTEXTS
    assert plan(found.needed - 1, demand) == MemoryPlan("refused", found.needed, found.allowed)
    assert plan(plan(1 << 60, demand).needed - 1, demand).mode == "lean"


@pytest.mark.parametrize("demand", [WHOLE, replace(GELU, remade=False)])
def test_what_cannot_be_lean_is_refused_with_what_full_judging_needs(demand: Demand) -> None:
    full = plan(1 << 60, demand)
    assert plan(full.needed - 1, demand) == MemoryPlan("refused", full.needed, full.allowed)


def test_of_several_shapes_the_tightest_plan_counts() -> None:
    full, lean, refused = (MemoryPlan(mode, 1, 1) for mode in memory_plan.MODES)
    assert tightest([lean, full]) == lean and tightest([full, refused, lean]) == refused


def test_what_a_lean_plan_leaves_out_is_said() -> None:
    assert not MemoryPlan("full", 1, 1).notes
    (said,) = MemoryPlan("lean", 3 * GIB, 1).notes
    assert said.startswith("memory plan: lean, of 3.0 GiB")


@pytest.mark.parametrize("demand", [GELU, SMALL, LAYER])
def test_each_further_baseline_takes_its_process_and_its_inputs(demand: Demand) -> None:
    each = PROCESS_BYTES + demand.inputs + demand.outputs + demand.parameters
    more = replace(demand, baselines=3)
    assert more.full - demand.full == 2 * each
    assert more.lean and demand.lean and more.lean - demand.lean == 2 * each


def test_inputs_that_come_out_otherwise_each_time_stay() -> None:
    assert replace(GELU, remade=False).full - GELU.full == 2 * (GELU.inputs + 2 * GELU.outputs)


@pytest.mark.parametrize(
    ("taken", "room", "fits", "candidates"),
    [
        (25, 60, True, True),  # a hog that starves the reference
        (25, 60, False, True),
        (24, 60, True, False),  # twice the reference's, and no more
        (13, 60, True, False),  # an honest kernel with a little scratch
        (0, 60, True, False),  # somebody else took what was free
        (0, 17, False, False),  # it had less than the plan gives, by others' doing
        (0, 18, False, True),  # it does not fit, with all that the plan gives and more
    ],
)
@pytest.mark.parametrize("allowed", [18, 24])
def test_memory_that_runs_out_is_the_candidates_or_ours(
    taken: int, room: int, fits: bool, candidates: bool, allowed: int
) -> None:
    ran = Exhaustion(taken=taken, room=room, fits=fits, reference=12, allowed=allowed)
    assert is_candidates(ran) is (candidates and (fits or room >= allowed))


def test_more_than_twice_the_reference_is_ours_where_the_plan_allows_it() -> None:
    assert not is_candidates(Exhaustion(taken=25, room=60, fits=True, reference=12, allowed=26))


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between tries, none of which is made."""
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(room.asyncio, "sleep", pause)
    return pauses


@pytest.mark.asyncio(loop_scope="session")
async def test_a_call_waits_while_others_hold_what_it_needs(tries: list[float]) -> None:
    async def work() -> int:
        if len(tries) < 5:
            raise NoRoom("held by others", waits=True)
        return 7

    assert await patiently(work) == 7
    assert tries == [1, 2, 4, 8, 8]


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize(("waits", "patience_s"), [(False, 120.0), (True, -1.0)])
async def test_a_call_waits_for_nothing_that_will_not_come(
    tries: list[float], monkeypatch: pytest.MonkeyPatch, waits: bool, patience_s: float
) -> None:
    monkeypatch.setattr(room, "PATIENCE_S", patience_s)

    async def work() -> None:
        raise NoRoom("too little", waits=waits)

    with pytest.raises(NoRoom):
        await patiently(work)
    assert not tries


class Played:
    """A device of so many bytes, of which those in `free` are free, one after the other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, total: int, *free: int) -> None:
        self.total, self.free = total, list(free)
        monkeypatch.setattr(room, "_room", self.room)
        monkeypatch.setattr(memory_plan, "PROCESS_BYTES", 0)
        monkeypatch.setattr(memory_plan, "SLACK_BYTES", 0)
        monkeypatch.setattr(room, "PROCESS_BYTES", 0)

    async def room(self, _: PreparedProblem) -> Room:
        return {"free": self.free.pop(0) if len(self.free) > 1 else self.free[0], "total": self.total}


async def quiet(message: str, *, ahead: int | None = None) -> None:
    pass


INPUTS = 2 * 64 * 256 * 4
LEAN = 6 * INPUTS  # of SCALE_ADD, whose inputs are twice its output; a host's process says nothing of its calls


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize(("free", "mode"), [(1 << 30, "full"), (LEAN, "lean")])
async def test_a_verdict_says_which_plan_it_was_judged_by(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, free: int, mode: str
) -> None:
    Played(monkeypatch, 1 << 40, free)
    asked = EvaluateRequest(QUICK, SCALE_ADD, "cpu", (), True, 120.0)
    result = await evaluate(workshop, asked, quiet)
    assert (result.status, result.memory_plan) == ("passed", mode), result.log
    assert any(note.startswith("memory plan: lean") for note in result.notes) is (mode == "lean")
    for wrong in ("1.1f * c[i % n]", "(i == m - 1 ? 1.1f : 1.0f) * c[i % n]"):
        asked = EvaluateRequest(edit(QUICK, "+ c[i % n]", f"+ {wrong}"), SCALE_ADD, "cpu", (), False, 120.0)
        assert (await evaluate(workshop, asked, quiet)).status == "wrong"


@pytest.mark.asyncio(loop_scope="session")
async def test_a_device_that_never_has_enough_is_refused_with_the_bytes(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, tries: list[float]
) -> None:
    Played(monkeypatch, 1 << 10, 1 << 10)
    with pytest.raises(Refusal, match=r"judging takes .* GiB of the device's memory \(.*are free") as refused:
        async with workshop.problems.prepared(SCALE_ADD, workshop.machine.device("cpu")):
            pass
    assert (refused.value.code, tries) == (Code.NO_ROOM, [])


@pytest.mark.asyncio(loop_scope="session")
async def test_memory_that_others_give_back_is_waited_for(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, tries: list[float]
) -> None:
    Played(monkeypatch, 1 << 40, 1, 1, 1, 1, 1 << 40)
    async with workshop.problems.prepared(SCALE_ADD, workshop.machine.device("cpu")) as prepared:
        assert prepared.plan and prepared.plan.mode == "full"
    assert tries == [1, 2]


RUNS_OUT = """
class OutOfMemoryError(RuntimeError):  # as torch's, by its name
    pass


calls = []
"""
FIRST = (
    "calls.append(1)\n        if len(calls) == 1:\n            raise OutOfMemoryError('no room')\n        return out"
)
ALWAYS = "raise OutOfMemoryError('no room')"


@pytest.mark.asyncio(loop_scope="session")
async def test_what_runs_out_of_memory_by_itself_is_to_blame(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    Played(monkeypatch, 1 << 40, 1 << 30)
    candidate = edit(edit(QUICK, "return out", ALWAYS), "class ModelNew", f"{RUNS_OUT}\nclass ModelNew")
    result = await evaluate(workshop, EvaluateRequest(candidate, SCALE_ADD, "cpu", (), False, 120.0), quiet)
    assert (result.status, "does not come to its end" in result.log) == ("run_error", True), result.log


@pytest.mark.asyncio(loop_scope="session")
async def test_what_has_room_once_it_is_alone_is_not_to_blame(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    Played(monkeypatch, 1 << 40, 1 << 30)
    candidate = edit(edit(QUICK, "return out", FIRST), "class ModelNew", f"{RUNS_OUT}\nclass ModelNew")
    with pytest.raises(Refusal, match="not by the candidate") as refused:
        await evaluate(workshop, EvaluateRequest(candidate, SCALE_ADD, "cpu", (), False, 120.0), quiet)
    assert refused.value.code is Code.NO_ROOM
