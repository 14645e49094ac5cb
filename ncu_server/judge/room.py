"""Whether a device has the memory to judge a problem, which is known before anything but the reference has run."""

from __future__ import annotations

from ncu_server.errors import Code, Refusal
from ncu_server.judge.input_set import InputSet
from ncu_server.judge.problem import PreparedProblem
from ncu_server.judge.trusted import trusted
from ncu_server.worker import verbs

TIMES = 4
"""What judging takes, in calls of the reference: of both sides the inputs, what they give and a copy of that."""
PROCESS_BYTES = 700 << 20  # of a context, with its libraries; an H200 took 520 to 640 MiB
PROCESSES = 3  # the reference, the comparison, the candidate
GIB = 1 << 30


async def require_memory(prepared: PreparedProblem, drawn: InputSet) -> None:
    """Raises Refusal NO_ROOM, with the bytes, where a device has less than judging takes."""
    free = await trusted(prepared.eager, verbs.Free(), [])
    working = working_bytes(drawn)
    there = free + sum(memory.room for memory in (drawn.inputs, drawn.expected))  # what is held of it by now
    needed = TIMES * working + PROCESSES * PROCESS_BYTES
    if free and needed > there:
        what = (
            f"{TIMES} times the {working / GIB:.1f} GiB that a call of the reference takes, and {PROCESSES} processes"
        )
        raise Refusal(
            Code.NO_ROOM,
            f"judging takes {needed / GIB:.1f} GiB of the device's memory ({what}), and {there / GIB:.1f} GiB are free",
            "end what else uses the device, or give smaller inputs",
        )


def working_bytes(drawn: InputSet) -> int:
    """The peak of one call of the reference: inputs, parameters, intermediates, outputs."""
    return int(drawn.inputs.spec["bytes"]) + int(drawn.memory["device_bytes"] if drawn.memory else 0)


def holds_gigabytes(prepared: PreparedProblem) -> bool:
    """Whether a problem holds so much of the device that another may want for it."""
    return prepared.is_giant or any(working_bytes(each) > GIB for each in prepared.timed)
