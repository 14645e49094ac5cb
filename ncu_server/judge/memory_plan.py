"""How a problem is judged with the memory that a device has free: in full, lean, or not at all; and whose fault it is
where that runs out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

GIB = 1 << 30
TIMES = 4
"""What full judging takes, in calls of the reference: of both sides the inputs, what they give and a copy of that."""
PROCESS_BYTES = 700 << 20  # of a context, with its libraries; an H200 took 520 to 640 MiB
PROCESSES = 3  # the reference, the comparison, the candidate
SLACK_BYTES = 3 << 29  # what is computed by pieces, and on both sides the values that every timed call's are made of
GIANT_BYTES = 1 << 30  # of inputs and what is compared: more is made anew when it is needed
HOG = 2  # times what the reference takes: more is the candidate's fault where memory runs out
SETS = 2  # input sets that lie there all the time where they are smaller

Mode = Literal["full", "lean", "refused"]
MODES: tuple[Mode, ...] = ("full", "lean", "refused")


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """How to judge, the bytes that this takes of all processes together, and how many a candidate may take of them."""

    mode: Mode
    needed: int
    allowed: int

    @property
    def name(self) -> Literal["full", "lean"] | None:
        """What results call it."""
        return None if self.mode == "refused" else self.mode

    @property
    def notes(self) -> list[str]:
        """What a lean plan leaves out, in a sentence."""
        size = f"{self.needed / GIB:.1f} GiB of the device's memory"
        left_out = "no draws of more than 16 MiB that timed calls alone see; fewer new values at each timed call"
        return [f"memory plan: lean, of {size}: {left_out}"] if self.mode == "lean" else []


@dataclass(frozen=True, slots=True)
class Demand:
    """What one call of the reference takes, in bytes: `inputs`, `outputs` and `parameters`, all at its height
    (`working`). `sliceable`: see worker.checking.slices. `narrow`: outputs of full float32 are computed, too. `remade`:
    inputs come out the same at a second draw. So many `baselines` take turns with the candidate."""

    inputs: int
    outputs: int
    parameters: int
    working: int
    sliceable: bool
    narrow: bool = False
    remade: bool = True
    baselines: int = 1

    @property
    def beside(self) -> int:
        """What comes on top in each mode: contexts, and each further baseline with its inputs."""
        further = self.baselines - 1
        return (PROCESSES + further) * PROCESS_BYTES + further * (self.inputs + self.outputs + self.parameters)

    @property
    def pieces(self) -> int:
        """What lies there for a moment, in any stage: 1.3 GiB on an H200, for calls of 2 to 12 GiB."""
        return min(SLACK_BYTES, self.working)

    @property
    def full(self) -> int:
        """Bytes of all processes together; outputs that stay do so in double precision."""
        goes = self.remade and self.inputs + self.outputs > GIANT_BYTES
        stays = 0 if goes else SETS * (self.inputs + 2 * self.outputs)
        return TIMES * self.working + stays + self.pieces + self.beside

    @property
    def stage(self) -> int:
        """The largest stage of lean judging, see the table in docs/judging.md: a call beside another side's inputs and
        what one more call gave; or exact values, of parameters in double, which of little are computed at once, beside
        those of full float32."""
        moved, alone = self.inputs + self.outputs, self.working - self.parameters
        calls = moved + alone + 2 * self.parameters
        exact = moved + 2 * alone + self.outputs if alone <= GIANT_BYTES else 2 * moved
        full = self.inputs + 3 * self.outputs if self.narrow else 0
        return max(calls, exact + 4 * self.parameters, full + 3 * self.parameters)

    @property
    def lean(self) -> int | None:
        """As `full`, of lean judging; None where that cannot be."""
        if not (self.sliceable and self.remade):
            return None
        return self.stage + self.pieces + self.beside


def plan(free: int, demand: Demand) -> MemoryPlan:
    """How to judge with so many bytes free; what is refused needs at least `needed`."""
    full, lean = MemoryPlan("full", demand.full, HOG * demand.working), demand.lean
    if free >= full.needed or lean is None or lean >= full.needed:
        return full if free >= full.needed else MemoryPlan("refused", full.needed, full.allowed)
    return MemoryPlan("lean" if free >= lean else "refused", lean, demand.stage)


@dataclass(frozen=True, slots=True)
class Exhaustion:
    """How memory ran out, in bytes: what the candidate takes; what is free where neither it nor anything of ours lies
    there (`room`), and whether it comes to its end in that (`fits`); what the reference takes at its height; what the
    plan allows the candidate."""

    taken: int
    room: int
    fits: bool
    reference: int
    allowed: int

    @property
    def sentence(self) -> str:
        """In words."""
        of = f"of {self.room / GIB:.1f} GiB that it has by itself, where the plan gives {self.allowed / GIB:.1f} GiB"
        beside = f"the reference takes {self.reference / GIB:.1f} GiB"
        if not self.fits:
            return f"it does not come to its end in {self.room / GIB:.1f} GiB, and {beside}"
        return f"it takes {self.taken / GIB:.1f} GiB {of}, and {beside}"


def is_candidates(ran: Exhaustion) -> bool:
    """Whether the candidate is to blame: it does not fit with the device to itself, or takes more than twice what the
    reference does and more than the plan allows."""
    if not ran.fits:
        return ran.room >= ran.allowed
    return ran.taken > max(HOG * ran.reference, ran.allowed)


def tightest(plans: list[MemoryPlan]) -> MemoryPlan:
    """That of several input shapes by which all can be judged."""
    return max(plans, key=lambda one: (MODES.index(one.mode), one.needed))
