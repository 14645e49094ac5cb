"""Which instruction causes what shows at another: a branch the idle threads behind it, a barrier the waiting."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

PREDICATE = r"(@!?U?P\w+ )?"
BRANCH, BARRIER = re.compile(rf"{PREDICATE}(BRA|BRX|BRXU|JMP|JMX|JMXU)\b.*"), re.compile(rf"{PREDICATE}BAR\b.*")
JUMP = re.compile(r"(BRA|JMP|EXIT|RET)\b[^P]*")  # without a predicate: what stands behind is reached from elsewhere
LANES = 32


class Executed(NamedTuple):
    """An instruction in SASS, and what was counted of it: by warp, by thread, by thread with its predicate true, and
    the samples of warps that wait at a barrier."""

    text: str
    warps: int
    active: int
    true: int
    waiting: int


def lanes_lost(code: Sequence[Executed]) -> list[int]:
    """How many threads of a warp took no part in an instruction, summed, by the instruction that causes it.

    Those whose predicate is false are lost at the instruction itself. Those that are elsewhere are laid to the branch
    that sent them there: the nearest instruction before with more of the warp's threads, where that is a branch (else
    to the instruction itself, as in a loop that some threads leave early). `code` is in the order of addresses.
    """
    lost, fuller = [0] * len(code), list[int]()
    for at, it in enumerate(code):
        lost[at] += it.active - it.true
        if not it.warps:
            continue
        while fuller and code[fuller[-1]].active * it.warps <= it.active * code[fuller[-1]].warps:
            fuller.pop()
        cause = fuller[-1] if fuller and BRANCH.fullmatch(code[fuller[-1]].text) else at
        lost[cause] += LANES * it.warps - it.active
        if not JUMP.fullmatch(it.text):
            fuller.append(at)
    return lost


def barrier_waits(code: Sequence[Executed]) -> list[int]:
    """Samples of warps that wait at a barrier, by the barrier's instruction: they are sampled at the one behind it
    (seen on sm_90; ncu 2025.3)."""
    waits = [0] * len(code)
    for at, it in enumerate(code):
        before = at and not BARRIER.fullmatch(it.text) and BARRIER.fullmatch(code[at - 1].text)
        waits[at - 1 if before else at] += it.waiting
    return waits
