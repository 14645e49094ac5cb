"""Whether a candidate that is mostly library code is the reference with some of its calls replaced."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import replace

from ncu_server.compiler.builds import Build
from ncu_server.judge.candidate import Attempt, open_another
from ncu_server.rules import authorship
from ncu_server.rules.authorship import Ownership, Profile
from ncu_server.sandbox.child import ChildError
from ncu_server.worker import verbs


async def stands_for_the_rest(attempt: Attempt, seen: Profile, own: Ownership) -> bool:
    """Whether libraries do no more for a candidate than for the reference, and its own kernels the rest of that one's
    work; see authorship.replaces. False where the reference cannot be profiled beside it."""
    drawn, problem = attempt.prepared.drawn, attempt.request.problem
    with tempfile.TemporaryDirectory(dir=attempt.prepared.device.work) as nothing_built:
        child = await attempt.prepared.candidate(nothing_built)
        with contextlib.closing(child):
            request = replace(attempt.request, candidate=f"{problem}\n\nModelNew = Model\n")
            other = replace(attempt, child=child, request=request, built=Build([], nothing_built, 0.0), notes=[])
            try:
                await open_another(other, child)
                reference = await other.ask_beside(verbs.Profile(drawn.inputs.spec, drawn.effects), drawn)
            except ChildError:
                return False
    return authorship.replaces(seen, reference, own)
