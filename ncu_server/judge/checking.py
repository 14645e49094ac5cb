"""A candidate's outputs on each secret input set, held against what is expected of it."""

from __future__ import annotations

import contextlib
from typing import Any

from ncu_server.judge import replies
from ncu_server.judge.candidate import Objection, Trial, blamed, compared, opened
from ncu_server.judge.input_set import Case
from ncu_server.judge.parameters import explained
from ncu_server.rules import comparison
from ncu_server.sandbox.forkserver import Child, ChildError, ChildFault
from ncu_server.sandbox.shared_memory import Shared

# What a candidate's call raises that is no refusal of what it was given.
FAULTS = {"UnacceptableOutput", "AcceleratorError", "OutOfMemoryError"}
CALL = "a kernel may be made for one value alone, if it raises for others"


async def checked(trial: Trial) -> float:
    """Run the candidate once on each secret input set, compare with what is expected; the largest error."""
    error = max([await _checked_on(trial, case) for case in trial.session.cases])
    for case in trial.session.cases:
        if case.holed:
            await _reads(trial, case, case.holed)
    return error


async def _checked_on(trial: Trial, case: Case) -> float:
    with blamed(trial, case.where), contextlib.closing(Shared("seen")) as got:
        try:
            ran = replies.checked(await _asked(trial.child, trial, case.inputs, got, case))
        except ChildFault as fault:
            if not case.change or fault.kind in FAULTS:
                raise
            trial.notes.append(f"the kernel refuses {case.change}: {fault.kind}: {' '.join(fault.text.split())}")
            return 0.0
        try:
            error = await compared(trial, case, case.expected, got, ran.seen, comparison.BOUND, case.where)
        except Objection as objection:
            if case.change:
                raise Objection(objection.status, f"{objection.log}; {CALL}", objection.error) from None
            if objection.error is None:
                raise
            raise await explained(trial, case, got, ran.seen, objection) from None
    if not ran.kept:
        raise Objection("wrong", f"{case.where}: the candidate changes its inputs", error)
    if case.fresh and not ran.fresh:
        words = "an output lies in the memory of an earlier call's, which is still held"
        raise Objection("wrong", f"{case.where}: {words}", error)
    return error


async def _asked(child: Child, trial: Trial, inputs: Shared, got: Shared, case: Case) -> Any:
    fds, timeout_s = [inputs.fd, got.fd], trial.request.timeout_s
    return await child.ask("check", fds, timeout_s, inputs=inputs.spec, effects=case.effects)


async def _reads(trial: Trial, case: Case, holed: Shared) -> None:
    """Object where the output is constant and stays, bit by bit, the same for rows of NaN, which show in whatever is
    computed of them. What else a kernel makes of NaN is its own affair, and so is a call that fails: this is a process
    of its own."""
    child = await trial.session.candidate(trial.built.directory)
    with contextlib.closing(child), contextlib.closing(Shared("one")) as one, contextlib.closing(Shared("two")) as two:
        try:
            await opened(trial, child)
            seen = [
                replies.checked(await _asked(child, trial, inputs, got, case)).seen
                for inputs, got in ((case.inputs, one), (holed, two))
            ]
            for spec, got in zip(seen, (one, two), strict=True):
                replies.held(spec, got.freeze())
        except (ChildError, Objection, replies.Malformed):
            return
        judge = await trial.session.judge()
        if seen[0] == seen[1] and await judge.ask("identical", [one.fd, two.fd], one=seen[0], other=seen[1]):
            words = "the output is the same, bit by bit, with rows of NaN that the judge put into the inputs, though "
            raise Objection("wrong", f"{words}NaN shows in whatever is computed of it: the inputs are not read")
