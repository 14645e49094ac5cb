"""How a problem is judged with the memory that a device has free: in full, lean, or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

GIB = 1 << 30
TIMES = 4
"""What full judging takes, in calls of the reference: of both sides the inputs, what they give and a copy of that."""
PROCESS_BYTES = 700 << 20  # of a context, with its libraries; an H200 took 520 to 640 MiB
PROCESSES = 3  # the reference, the comparison, the candidate
SLACK_BYTES = 512 << 20  # a slice in double, and on both sides the values that every timed call's are made of
GIANT_BYTES = 1 << 30  # of inputs and what is compared: more is made anew when it is needed
HOG = 2  # times what the reference takes: more is the candidate's fault where memory runs out
SETS = 2  # input sets that lie there all the time where they are smaller
LEAN_HOLDS = False
"""Whether a lean plan is made. On an H200 it ran out of memory with 3 W of 2.5 W that it counts: what it lacks is
refused at once until that is understood."""

Mode = Literal["full", "lean", "refused"]
MODES: tuple[Mode, ...] = ("full", "lean", "refused")


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """How to judge, the bytes that this takes of all processes together, and how many a candidate may take of them."""

    mode: Mode
    needed: int
    allowed: int


@dataclass(frozen=True, slots=True)
class Demand:
    """What one call of the reference takes, in bytes: `inputs`, `outputs` and `parameters`, all at its height
    (`working`). `sliceable`: see worker.checking.slices. `remade`: inputs come out the same at a second draw. So many
    `baselines` take turns with the candidate."""

    inputs: int
    outputs: int
    parameters: int
    working: int
    sliceable: bool
    remade: bool = True
    baselines: int = 1

    @property
    def between(self) -> int:
        """What the call takes between its inputs and outputs."""
        return max(0, self.working - self.inputs - self.outputs - self.parameters)

    @property
    def beside(self) -> int:
        """What comes on top in each mode: contexts, and each further baseline with its inputs."""
        further = self.baselines - 1
        return (PROCESSES + further) * PROCESS_BYTES + further * (self.inputs + self.outputs + self.parameters)

    @property
    def full(self) -> int:
        """Bytes of all processes together; outputs that stay do so in double precision."""
        goes = self.remade and self.inputs + self.outputs > GIANT_BYTES
        stays = 0 if goes else SETS * (self.inputs + 2 * self.outputs)
        return TIMES * self.working + stays + self.beside

    @property
    def lean(self) -> int:
        """The same where nothing lies there before it is needed: the largest stage of docs/judging.md counts."""
        given, made, both, call = self.inputs, self.outputs, 2 * self.parameters, self.between
        stages = (
            3 * given + 2 * made + call + both,  # inputs made sharper, a second call
            2 * given + 3 * made + call + both,  # the candidate's call; both sides taking turns
            2 * given + 3 * made + 2 * both,  # exact values, of parameters in double
            given + 4 * made + both,  # the comparison
        )
        return max(stages) + SLACK_BYTES + self.beside


def plan(free: int, demand: Demand) -> MemoryPlan:
    """How to judge with so many bytes free; what is refused needs at least `needed`."""
    full = MemoryPlan("full", demand.full, 2 * demand.working)
    if free >= full.needed:
        return full
    needed, allowed = demand.full, full.allowed
    if LEAN_HOLDS and demand.sliceable and demand.remade and demand.lean < needed:
        needed, allowed = demand.lean, demand.working + demand.outputs
    return MemoryPlan("lean" if free >= needed else "refused", needed, allowed)


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


def plan_name(plan: MemoryPlan | None) -> Literal["full", "lean"] | None:
    """What results call it; None where the device's memory is not planned."""
    return None if plan is None or plan.mode == "refused" else plan.mode


def plan_notes(plan: MemoryPlan | None) -> list[str]:
    """What a lean plan leaves out, in a sentence."""
    if not plan or plan.mode != "lean":
        return []
    size = f"{plan.needed / GIB:.1f} GiB of the device's memory"
    return [f"memory plan: lean, of {size}: no draws of more than 16 MiB that timed calls alone see; fewer new values"]


def tightest(plans: list[MemoryPlan]) -> MemoryPlan:
    """That of several input shapes by which all can be judged."""
    return max(plans, key=lambda one: (MODES.index(one.mode), one.needed))
