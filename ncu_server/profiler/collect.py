"""One run of ncu: from a command line to the facts of what it profiled, or to the reason why it did not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ncu_server.errors import Code, Refusal
from ncu_server.machine.lease import Lease, Progress
from ncu_server.profiler import ncu, reports
from ncu_server.profiler.facts import KernelFacts
from ncu_server.sandbox.supervisor import OVER, Supervisor

NAMES_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Collected:
    """What a run of ncu left: its report (None where it wrote none), the launches in it, its words, its exit code."""

    raw: Path | None
    kernels: list[KernelFacts]
    writer: str | None
    heard: ncu.Heard
    code: int

    @property
    def nothing(self) -> Refusal:
        """Why there is no launch to speak of."""
        if self.code == OVER:
            return Refusal(Code.NCU_FAILED, "the profiled program used too much memory and was stopped")
        seen = list(dict.fromkeys(self.heard.seen))[:NAMES_SHOWN]
        if self.heard.nothing or (self.heard.connected and not self.heard.errors):
            there = f"; it launched {', '.join(seen)}" if seen else ""
            return Refusal(Code.NO_KERNEL_MATCH, f"no launch was profiled{there}", "widen kernel_regex or the launches")
        return Refusal(Code.NCU_FAILED, f"ncu ended with exit code {self.code} and said: {self.last}")

    @property
    def last(self) -> str:
        """Its last error, or its last line where it told none."""
        said = [*self.heard.lines, *self.heard.errors]
        return next((line for line in reversed(said) if line.strip()), "nothing")[:300]


def program() -> str:
    """Where ncu is. Raises Refusal NO_PROFILER."""
    there = ncu.find()
    if there is None:
        fix = "install nsight-compute, or put ncu on the server's PATH"
        raise Refusal(Code.NO_PROFILER, "Nsight Compute (ncu) is not on this machine", fix)
    return there


async def collect(
    supervisor: Supervisor,
    lease: Lease,
    selection: ncu.Selection,
    target: Sequence[str],
    place: Path,
    from_start: bool,
    timeout_s: float,
    progress: Progress,
) -> Collected:
    """Profile `target`, alone on the device; the report lies in `place` and is read once the device is free again.

    Raises Refusal for what is neither the target's fault nor its caller's choice of launches: no ncu, counters denied
    or busy, a lock held, a report that cannot be read, TOOK_TOO_LONG.
    """
    raw = place / reports.RAW
    line = ncu.command(program(), selection, raw, target, from_start)
    heard, words = ncu.Heard(), asyncio.Queue[str]()

    def hear(part: bytes) -> None:
        if said := heard.feed(part):
            words.put_nowait(said)

    async with lease.alone(progress):
        speaking = asyncio.create_task(_speak(words, progress))
        try:
            ended = await supervisor.run(line, timeout_s, hear, merged=True)
        except TimeoutError:
            reason = f"profiling took longer than {timeout_s:.0f} s"
            raise Refusal(Code.TOOK_TOO_LONG, reason, "raise timeout_s, or ask for detail basic") from None
        finally:
            speaking.cancel()
    heard.end()
    if refusal := heard.refusal():
        raise refusal
    if not raw.exists():
        return Collected(None, [], None, heard, ended.code)
    try:
        facts, writer = await reports.open_report(raw)
    except Refusal as refusal:
        if refusal.code is Code.BAD_REPORT and ended.code:  # ncu fell with its target, and left what it had
            return Collected(None, [], None, heard, ended.code)
        raise
    return Collected(raw, facts.kernels, writer, heard, ended.code)


async def _speak(words: asyncio.Queue[str], progress: Progress) -> None:
    while True:
        await progress(await words.get())
