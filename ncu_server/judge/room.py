"""Whether a device has the memory to judge a problem, which is decided before more than one call has run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from ncu_server.errors import Code, Refusal
from ncu_server.judge.input_set import InputSet
from ncu_server.judge.memory_plan import GIB, PROCESS_BYTES, PROCESSES, Demand, MemoryPlan, plan, tightest
from ncu_server.judge.problem import PreparedProblem
from ncu_server.judge.trusted import trusted
from ncu_server.sandbox.shared_memory import Spec
from ncu_server.worker import answers, verbs

T = TypeVar("T")
PATIENCE_S = 120.0
"""How long a call waits for memory that others hold."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 8.0
INTEGERS, INTEGER_BYTES = ("int", "uint", "bool"), 128 << 20
FIX = "end what else uses the device, or give smaller inputs"


class NoRoom(Refusal):
    """Too little memory is free; `waits` says whether the device would have enough without what others hold."""

    def __init__(self, reason: str, waits: bool = False) -> None:
        super().__init__(Code.NO_ROOM, reason, FIX)
        self.waits = waits


async def patiently(work: Callable[[], Awaitable[T]]) -> T:
    """What `work` gives; it is tried again while others hold the memory that it needs. Raises NoRoom after PATIENCE_S.

    Nothing may be held meanwhile, the device least of all."""
    began, pause = time.monotonic(), FIRST_PAUSE_S
    while True:
        try:
            return await work()
        except NoRoom as refusal:
            if not refusal.waits or time.monotonic() - began > PATIENCE_S:
                raise
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_S)


async def plan_memory(prepared: PreparedProblem, drawn: InputSet) -> None:
    """Measure one call of the reference on a new input shape, and plan by what it takes. Raises NoRoom, with the
    bytes."""
    if not (await _room(prepared))["total"]:
        return
    measured = await trusted(prepared.eager, verbs.MeasureCall(drawn.inputs.spec), [drawn.inputs])
    given = int(drawn.inputs.spec["bytes"])
    prepared.demands[drawn.variant] = Demand(
        inputs=given,
        outputs=measured["outputs"],
        parameters=measured["parameters"],
        working=given + measured["memory"]["device_bytes"],
        sliceable=measured["sliceable"] and not _moves_much(drawn.inputs.spec),
        narrow=measured["narrow"],
    )
    await _decide(prepared, list(prepared.demands.values()))


def _moves_much(spec: Spec) -> bool:
    """Whether an input of integers is so large that its copies, as drawn and moved, are not what lean judging plans."""
    large = (layout for layout in spec["tensors"] if layout["bytes"] > INTEGER_BYTES)
    return any(layout["dtype"].startswith(INTEGERS) for layout in large)


async def plan_again(prepared: PreparedProblem, baselines: int) -> None:
    """Plan for one verdict, beside so many baselines, by what is free now. Raises NoRoom."""
    demands = [replace(one, baselines=baselines) for one in prepared.demands.values()]
    if any(one.working > GIB for one in demands):
        await _decide(prepared, demands)
    if prepared.lean:
        await prepared.release()
        prepared.forget_all()


async def free_bytes(prepared: PreparedProblem) -> int:
    """Bytes of the device that nobody holds but the problem itself; 0 where they are not planned."""
    return (await _room(prepared))["free"] + prepared.held_rooms if prepared.plan else 0


async def _decide(prepared: PreparedProblem, demands: list[Demand]) -> None:
    room = await _room(prepared)
    free = room["free"] + prepared.held_rooms + prepared.processes * PROCESS_BYTES  # those are among what is needed
    remade = [replace(one, remade=prepared.remakes) for one in demands]
    plans = [plan(free, one) for one in remade]
    prepared.plan = found = tightest(plans)
    if found.mode == "refused":
        demand = remade[plans.index(found)]
        alone = room["total"] - (PROCESSES - 1) * PROCESS_BYTES
        raise NoRoom(too_little(found, demand, free), plan(alone, demand).mode != "refused")


async def _room(prepared: PreparedProblem) -> answers.Room:
    return await trusted(prepared.eager, verbs.Free(), [])


async def others_hold(prepared: PreparedProblem) -> bool:
    """Whether more of a device's memory is taken than processes of ours take by themselves."""
    room = await _room(prepared)
    return room["free"] + prepared.held_rooms + (PROCESSES + 1) * PROCESS_BYTES < room["total"]


def too_little(found: MemoryPlan, demand: Demand, free: int) -> str:
    """In words, why nothing was begun."""
    what = f"a call of the reference takes {demand.working / GIB:.1f} GiB, and {PROCESSES} processes"
    why = "" if demand.sliceable else "; no dimension was found along which it can be computed in slices"
    needed = f"judging takes {found.needed / GIB:.1f} GiB of the device's memory ({what}{why})"
    return f"{needed}, and {free / GIB:.1f} GiB are free"


def working_bytes(drawn: InputSet) -> int:
    """The peak of one call of the reference: inputs, parameters, intermediates, outputs."""
    return int(drawn.inputs.spec["bytes"]) + int(drawn.memory["device_bytes"] if drawn.memory else 0)


def holds_gigabytes(prepared: PreparedProblem) -> bool:
    """Whether a problem holds so much of the device that another may want for it."""
    return prepared.is_giant or any(working_bytes(each) > GIB for each in prepared.timed)
