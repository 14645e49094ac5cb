"""The modes of torch.compile come to run before the device is waited for, which is held as little as can be.

A mode's process holds the lease while inputs are laid on the device, and for the first call. In between it compiles on
the host. What Inductor measures while it compiles is measured by the first call, which finds all else in its caches.
"""

from __future__ import annotations

from collections.abc import Sequence

from ncu_server.judge.interleave import Rotation
from ncu_server.judge.modes import BASELINES, COMPILE_TIMEOUT_S, first_call_s
from ncu_server.judge.problem import PreparedProblem
from ncu_server.judge.trusted import exhausted
from ncu_server.machine.lease import Progress
from ncu_server.sandbox.child import Child, ChildError
from ncu_server.worker import timing_verbs, verbs


async def compile_ahead(prepared: PreparedProblem, names: Sequence[str], progress: Progress) -> None:
    """Have those of the named baselines that are compiled ready to be timed on each input shape.

    One that fails is told by `PreparedProblem.sides`. Whoever calls this does not hold the lease. Raises Refusal.
    """
    async with prepared.compiling:
        for name in names:
            if BASELINES[name] and not prepared.has_compiled(name):
                await _compile(prepared, name, progress)


async def _compile(prepared: PreparedProblem, name: str, progress: Progress) -> None:
    async with prepared.device.lease.alone(progress):
        child = await prepared.compiled_child(name)
    try:
        rotation = await _warmed(prepared, child, name, progress)
    except ChildError as fault:
        child.close()
        if not exhausted(fault):  # there may be room when it is timed
            prepared.gives_up(name, fault)
    except BaseException:
        child.close()
        raise
    else:
        prepared.adopt(name, child, rotation)


async def _warmed(prepared: PreparedProblem, child: Child, name: str, progress: Progress) -> Rotation | None:
    """Let the child call the model once on each input shape; how the inputs of the last one rotate. None where it holds
    none: gigabytes are held with the device alone."""
    lease, rotation, giant = prepared.device.lease, Rotation(1, True, False), prepared.is_giant
    for input_set in prepared.timed:
        async with lease.alone(progress):
            rotation = await prepared.rotation(child, input_set, COMPILE_TIMEOUT_S)
            if giant:
                await child.ask(timing_verbs.Hollow(), timeout_s=COMPILE_TIMEOUT_S)
        async with prepared.device.compiling(progress):
            await progress(f"compiling: {name}")
            await child.ask(verbs.CompileAhead(), timeout_s=COMPILE_TIMEOUT_S)
            child.rest()
        async with lease.alone(progress):
            await progress(f"first call: {name}")
            if giant:
                await prepared.rotation(child, input_set, COMPILE_TIMEOUT_S)
            await child.ask(timing_verbs.Block(nonce=0, count=1), timeout_s=first_call_s(name))
            if giant:
                await child.ask(timing_verbs.Unstage(), timeout_s=COMPILE_TIMEOUT_S)
            child.rest()
    return None if giant else rotation
