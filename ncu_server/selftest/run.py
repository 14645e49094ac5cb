"""Run the shipped cases against the judge of this machine: whether its verdicts mean something here."""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import os
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from ncu_server.errors import Code, Refusal
from ncu_server.judge.candidate import EvaluateRequest
from ncu_server.judge.evaluate import evaluate
from ncu_server.judge.problems import Workshop
from ncu_server.machine.tickets import unheard
from ncu_server.selftest.canaries import Canaries
from ncu_server.selftest.cases import SelftestCase
from ncu_server.wire import evaluation


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one case. `said` is a status, or `refused` where the judge gave no verdict."""

    case: SelftestCase
    expect: frozenset[str]
    said: str
    log: str
    speedup: float | None
    effects: tuple[str, ...]
    seconds: float

    @property
    def fault(self) -> str | None:
        """Why this is not what a sound judge says, in words; None where it is."""
        if self.effects:
            return f"it reached {', '.join(self.effects)}"
        if self.said not in self.expect:
            return f"{self.said}: {self.log.strip().splitlines()[-1][:300]}" if self.log.strip() else self.said
        if self.case.at_most and self.speedup and self.speedup > self.case.at_most:
            return f"credited with {self.speedup:.2f}x, at most {self.case.at_most:g}x is real"
        return None

    def row(self) -> str:
        """One line of the table: ok, case, kind, what the judge should say, what it said, seconds."""
        state = "FAIL" if self.fault else "ok"
        should = "|".join(sorted(self.expect))
        line = f"{state:4}  {self.case.name:34}  {self.case.kind:27.27}  {should:28.28}  {self.said:11}"
        line += f"  {self.seconds:6.1f}"
        return line + (f"\n      {self.fault}" if self.fault else "")

    def facts(self) -> dict[str, str | float | bool | list[str] | None]:
        """The same as data."""
        return {
            "case": self.case.name,
            "kind": self.case.kind,
            "honest": self.case.honest,
            "why": self.case.why,
            "expect": sorted(self.expect),
            "said": self.said,
            "log": self.log,
            "speedup": self.speedup,
            "effects": list(self.effects),
            "seconds": round(self.seconds, 2),
            "ok": self.fault is None,
            "fault": self.fault,
        }


HEAD = f"{'':4}  {'case':34}  {'kind':27}  {'should say':28}  {'said':11}  {'s':>6}"


def chosen(cases: Sequence[SelftestCase], target: str | None, names: Sequence[str]) -> list[SelftestCase]:
    """Those of the target whose name, or its last part, matches one of `names` (shell patterns); all without names.

    Raises Refusal where a name fits none.
    """
    of_target = [c for c in cases if target in (None, c.target)]
    if not names:
        return of_target
    for name in names:
        if not any(_fits(case, name) for case in of_target):
            raise Refusal(Code.BAD_ARGUMENT, f"there is no case {name!r}", "the command without names runs them all")
    return [c for c in of_target if any(_fits(c, name) for name in names)]


def _fits(case: SelftestCase, pattern: str) -> bool:
    return any(fnmatch.fnmatchcase(n, pattern) for n in (case.name, case.name.partition("/")[2]))


async def judged(workshop: Workshop, case: SelftestCase, rules: evaluation.Rules) -> Outcome:
    """One case before the judge, with canaries where it tries for them."""
    began = time.monotonic()
    with Canaries() if case.effects else contextlib.nullcontext() as canaries:
        source = canaries.fill(case.candidate) if canaries else case.candidate
        request = EvaluateRequest(source, case.problem, case.target, ("eager",), False, case.timeout_s, rules)
        said, log, told, speedup = await _verdict(workshop, request)
        effects = await canaries.touched(told) if canaries else ()
    return Outcome(case, case.expect[rules], said, log, speedup, effects, time.monotonic() - began)


async def _verdict(workshop: Workshop, request: EvaluateRequest) -> tuple[str, str, str, float | None]:
    """The status, the log, all that was told, and the speed-up over eager."""
    try:
        result = await evaluate(workshop, request, unheard)
    except Refusal as refusal:
        return "refused", str(refusal), str(refusal), None
    speedup = result.versus[0].speedup.median if result.versus else None
    return result.status, result.log, result.model_dump_json(), speedup


async def outcomes(cases: Sequence[SelftestCase], rules: evaluation.Rules) -> AsyncIterator[Outcome]:
    """Each as it comes; as many at once as there are cores, so that builds overlap (the device is leased to one)."""
    workshop = Workshop()
    room = asyncio.Semaphore(max(2, len(os.sched_getaffinity(0))))

    async def one(case: SelftestCase) -> Outcome:
        async with room:
            return await judged(workshop, case, rules)

    tasks = [asyncio.create_task(one(case)) for case in cases]
    try:
        for done in asyncio.as_completed(tasks):
            yield await done
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        workshop.close()
