"""Why a kernel is wrong that computes the right thing of the wrong parameters: which of them differ."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from ncu_server.errors import Refusal
from ncu_server.judge import replies
from ncu_server.judge.candidate import Attempt, Objection
from ncu_server.judge.input_set import InputSet
from ncu_server.judge.trusted import PREPARE_TIMEOUT_S
from ncu_server.rules import comparison
from ncu_server.sandbox.child import ChildError
from ncu_server.sandbox.shared_memory import Shared, Spec
from ncu_server.worker import verbs
from ncu_server.worker.answers import Difference

FILLS = (0.0, 1.0)  # what a parameter is to a kernel that leaves it out
SHOWN = 4
SEED = (
    "both constructors run under one seed, so construct the same layers, or draw by the same calls, in the same order"
)


async def explain(attempt: Attempt, input_set: InputSet, got: Shared, seen: Spec, objection: Objection) -> Objection:
    """The objection to wrong values, with the parameters first where they are the cause, or differ by name.

    Proof is that the reference gives what the candidate gave, once it has the candidate's parameters.
    """
    try:
        async with _differing(attempt, input_set) as (theirs, spec, found):
            if not found:
                return objection
            async with attempt.prepared.present(input_set):
                cause = await _is_cause(attempt, input_set, got, seen, theirs, spec, found)
    except (ChildError, Refusal):  # such as for want of memory: the verdict stands without
        return objection
    return Objection(objection.status, _words(input_set, found, cause, objection.log), objection.error)


@contextlib.asynccontextmanager
async def _differing(attempt: Attempt, input_set: InputSet) -> AsyncIterator[tuple[Shared, Spec, list[Difference]]]:
    """The candidate's tensors, and which of the reference's it has otherwise."""
    with contextlib.closing(Shared("parameters")) as theirs:
        spec = await attempt.ask(verbs.Parameters(), [theirs])
        replies.require_tree(attempt.child, spec, theirs)
        asked = verbs.Differing(spec, input_set.effects["buffers"])
        yield theirs, spec, await attempt.prepared.eager.ask(asked, [theirs], PREPARE_TIMEOUT_S)


async def _is_cause(
    attempt: Attempt,
    input_set: InputSet,
    got: Shared,
    seen: Spec,
    theirs: Shared,
    spec: Spec,
    found: list[Difference],
) -> bool:
    judge, eager = await attempt.prepared.judge(), attempt.prepared.eager
    for fill in FILLS if any(one["other"] is None for one in found) else FILLS[:1]:
        with contextlib.closing(Shared("expected")) as want:
            fds = [input_set.inputs, want, theirs]
            asked = verbs.ExpectWith(input_set.inputs.spec, input_set.effects, spec, found, fill)
            answer = await eager.ask(asked, fds, PREPARE_TIMEOUT_S)
            want.seal(answer["stored"])
            pair = verbs.Compare(want.spec, seen, answer["units"], comparison.BOUND)
            results = await judge.ask(pair, [want, got])
        if not any(one["outside"] for one in results):
            return True
    return False


def _words(input_set: InputSet, found: list[Difference], cause: bool, log: str) -> str:
    if cause or any(one["named"] for one in found):
        why = "with the candidate's the reference gives what the kernel gives" if cause else "which may be the cause"
        values = log.removeprefix(f"{input_set.where}: ")
        return f"{input_set.where}: parameters differ: {_list(found)}; {why}; {SEED}; {values}"
    names = ", ".join(f"`{one['name']}`" for one in found[:SHOWN])
    return f"{log}; of the reference's parameters it holds no {names}: folded into others, or drawn otherwise"


def _list(found: list[Difference]) -> str:
    each = [
        f"`{one['name']}` has other values"
        if one["named"]
        else f"`{one['other']}`, in place of `{one['name']}`, has other values"
        if one["other"]
        else f"nothing stands for `{one['name']}`"
        for one in found[:SHOWN]
    ]
    more = len(found) - SHOWN
    return ", ".join(each) + (f", and {more} more" if more > 0 else "")
