"""Asking a process that runs the problem's own code: what it raises is the problem's fault, in one sentence."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from ncu_server.errors import Code, Refusal
from ncu_server.rules.python_source import demands_cuda
from ncu_server.sandbox import limits
from ncu_server.sandbox.child import Child, ChildDied, ChildError, ChildFault, ChildStarved, ChildTimeout, Lost
from ncu_server.sandbox.shared_memory import Shared
from ncu_server.sandbox.verb import Verb
from ncu_server.worker import timing_verbs, verbs

PREPARE_TIMEOUT_S = 300.0
TRIES = 3  # of a call: what is given up beside it may take a problem's processes along, a few calls one after the other
R = TypeVar("R")
T = TypeVar("T")
# Where a verb runs the problem's own code.
STEPS: dict[type[Verb[Any]], str] = {
    verbs.OpenReference: "loading (module, get_init_inputs or Model's constructor)",
    verbs.Sharpen: "get_inputs",
    verbs.DrawsAgain: "get_inputs",
    verbs.Mutate: "get_inputs",
    verbs.Still: "Model.forward",
    timing_verbs.KeptInputs: "get_inputs",
    verbs.Expect: "Model.forward",
    verbs.ExpectAgain: "Model.forward",
    timing_verbs.ExpectKept: "Model.forward",
    verbs.MeasureCall: "Model.forward",
    verbs.Free: "asking for the device's memory",
}
UNJUDGEABLE = "Unjudgeable"  # the class in worker.tensors, whose words are a whole sentence


def exhausted(error: BaseException | None) -> bool:
    """Whether a process found no room on the device: torch's exception, by its class."""
    return isinstance(error, ChildFault) and error.kind == "OutOfMemoryError"


async def trusted(child: Child, verb: Verb[T], memories: Sequence[Shared]) -> T:
    """The answer. Raises Refusal BAD_PROBLEM where the problem's code fails, takes too long or ends the process."""
    try:
        return await child.ask(verb, memories, PREPARE_TIMEOUT_S)
    except ChildFault as fault:
        if exhausted(fault):
            words = f"the device has too little memory for the problem's own code in {_step(verb)}"
            raise Refusal(Code.NO_ROOM, f"{words}: {fault.text.split('.')[0]}", "give smaller inputs") from fault
        if fault.lacked_memory:
            raise _no_room(fault, f"in {_step(verb)}") from fault
        raise Refusal(Code.BAD_PROBLEM, _sentence(fault, f"in {_step(verb)}")) from fault
    except ChildTimeout:
        sentence = f"the problem needs more than {PREPARE_TIMEOUT_S:.0f} s in {_step(verb)}"
        raise Refusal(Code.BAD_PROBLEM, sentence) from None
    except ChildStarved as starved:
        raise _no_room(starved, f"in {_step(verb)}") from starved
    except ChildDied as died:
        if child.abandoned:  # by a call that went before and was given up
            raise Lost() from None
        raise Refusal(Code.BAD_PROBLEM, f"the problem's process ended in {_step(verb)}: {died}") from died


async def until_kept(work: Callable[[], Awaitable[R]]) -> R:
    """What `work` gives; where processes of ours are lost on the way, it is done anew, TRIES times in all."""
    for _ in range(TRIES - 1):
        with contextlib.suppress(Lost):
            return await work()
    return await work()


def _no_room(error: ChildError, where: str) -> Refusal:
    words = " ".join(error.sentence.split())
    return Refusal(
        Code.NO_ROOM,
        f"the host has too little memory for the problem's own code {where} ({words}; {limits.bound()})",
        "give smaller inputs, or a machine with more memory",
    )


def advised(refusal: Refusal, problem: str, on_host: bool) -> Refusal:
    """The refusal with what to do about it where the problem names a cuda device and is judged on the host."""
    fault = refusal.__cause__
    lacks = on_host and isinstance(fault, ChildFault) and fault.kind in ("AssertionError", "RuntimeError")
    if not lacks or not demands_cuda(problem):
        return refusal
    advice = "it names a cuda device, which the cpu target lacks: name none, model and inputs are moved to the target"
    return Refusal(refusal.code, refusal.reason, "; ".join(filter(None, (refusal.fix, advice))))


def ours(error: ChildError) -> Refusal:
    """What a fault in a process of ours is: want of memory, the problem's where its code raised, else a loss worth a
    retry."""
    if error.lacked_memory:
        return _no_room(error, "in a timed call")
    if isinstance(error, ChildFault):
        return Refusal(Code.BAD_PROBLEM, _sentence(error, "in a timed call"))
    return Lost(error.sentence)


def _sentence(fault: ChildFault, where: str) -> str:
    words = " ".join(fault.text.split())
    return words if fault.kind == UNJUDGEABLE else f"the problem fails {where}: {fault.kind}: {words}"


def _step(verb: Verb[Any]) -> str:
    return verb.variant if isinstance(verb, verbs.Draw) else STEPS[type(verb)]
