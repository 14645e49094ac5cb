"""A candidate's outputs on each secret input set, held against what is expected of it."""

from __future__ import annotations

import contextlib

from ncu_server.judge import memory, replies
from ncu_server.judge.candidate import Attempt, Objection, blamed, compare, open_another
from ncu_server.judge.input_set import InputSet
from ncu_server.judge.parameters import explain
from ncu_server.judge.secret_inputs import is_giant_set
from ncu_server.rules import comparison
from ncu_server.rules.precision import Exactness, joined
from ncu_server.sandbox.child import Child, ChildError, ChildFault
from ncu_server.sandbox.shared_memory import Shared
from ncu_server.worker import answers, verbs

# What a candidate's call raises that is no refusal of what it was given.
FAULTS = {"UnacceptableOutput", "AcceleratorError", "OutOfMemoryError", "MemoryError"}
CALL = "a kernel may be made for one value alone, if it raises for others"


async def check(attempt: Attempt) -> Exactness | None:
    """Run the candidate once on each secret input set, compare with what is expected; its error on all of them."""
    each = [await _checked_on(attempt, input_set) for input_set in attempt.prepared.input_sets]
    for input_set in attempt.prepared.input_sets:
        if input_set.holed:
            await _reads(attempt, input_set, input_set.holed)
    return joined([one for one in each if one])


async def _checked_on(attempt: Attempt, input_set: InputSet) -> Exactness | None:
    prepared = attempt.prepared
    async with (
        blamed(attempt, input_set.where),
        prepared.slot(input_set.room) as got,
        contextlib.AsyncExitStack() as stack,
    ):
        try:
            ran = await _check(attempt.child, attempt, input_set, got, input_set)
        except ChildFault as fault:
            if not input_set.change or fault.kind in FAULTS:
                raise
            attempt.notes.append(f"the kernel refuses {input_set.change}: {fault.kind}: {' '.join(fault.text.split())}")
            return None
        if input_set.how == "as drawn":
            attempt.memory = memory.larger(attempt.memory, memory.beside(ran["memory"], input_set, attempt))
        await stack.enter_async_context(prepared.known(input_set))  # large ones only once the call has made room
        try:
            error = await compare(
                attempt, input_set, input_set.expected, got, ran["seen"], comparison.BOUND, input_set.where
            )
        except Objection as objection:
            if input_set.change:
                raise Objection(objection.status, f"{objection.log}; {CALL}", objection.error) from None
            if objection.error is None:
                raise
            await stack.aclose()  # what is expected makes room for what else may be
            raise await explain(attempt, input_set, got, ran["seen"], objection) from None
    if not ran["kept"]:
        raise Objection("wrong", f"{input_set.where}: the candidate changes its inputs", error)
    if input_set.fresh and not (ran["fresh"] and await _is_fresh(attempt, input_set)):
        words = "an output lies in the memory of an earlier call's, which is still held"
        raise Objection("wrong", f"{input_set.where}: {words}", error)
    return error


async def _is_fresh(attempt: Attempt, input_set: InputSet) -> bool:
    """Of gigabytes, which no check holds until the next one, two calls say whether outputs have their own memory."""
    if input_set.how != "as drawn" or not is_giant_set(input_set):
        return True
    async with blamed(attempt, input_set.where):
        return await attempt.ask_beside(verbs.Fresh(input_set.inputs.spec, input_set.effects), input_set)


async def _check(
    child: Child, attempt: Attempt, inputs: InputSet | Shared, got: Shared, input_set: InputSet
) -> answers.Checked:
    """`inputs` are the set's, or others of the same form."""
    spec = inputs.inputs.spec if isinstance(inputs, InputSet) else inputs.spec
    return await attempt.ask_beside(verbs.Check(spec, input_set.effects, input_set.room), inputs, got, child=child)


async def _reads(attempt: Attempt, input_set: InputSet, holed: Shared) -> None:
    """Object where the output is constant and stays, bit by bit, the same for rows of NaN, which show in whatever is
    computed of them. What else a kernel makes of NaN is its own affair, and so is a call that fails: this is a process
    of its own."""
    prepared, room = attempt.prepared, input_set.room
    child = await prepared.candidate(attempt.built.directory)
    with contextlib.closing(child):
        async with prepared.slot(room) as one, prepared.slot(room) as two:
            await _object_if_alike(attempt, child, input_set, holed, one, two)


async def _object_if_alike(
    attempt: Attempt, child: Child, input_set: InputSet, holed: Shared, one: Shared, two: Shared
) -> None:
    try:
        await open_another(attempt, child)
        seen = [
            (await _check(child, attempt, inputs, got, input_set))["seen"]
            for inputs, got in ((input_set, one), (holed, two))
        ]
        for spec, got in zip(seen, (one, two), strict=True):
            replies.require_tree(child, spec, got)
    except (ChildError, Objection):
        return
    judge = await attempt.prepared.judge()
    if seen[0] == seen[1] and await judge.ask(verbs.Identical(*seen), [one, two]):
        words = "the output is the same, bit by bit, with rows of NaN that the judge put into the inputs, though "
        raise Objection("wrong", f"{words}NaN shows in whatever is computed of it: the inputs are not read")
