"""What judging takes of the memory of a device, and whose fault it is where that runs out."""

from __future__ import annotations

from dataclasses import dataclass

GIB = 1 << 30
TIMES = 4
"""What judging takes, in calls of the reference: of both sides the inputs, what they give and a copy of that."""
PROCESS_BYTES = 700 << 20  # of a context, with its libraries; an H200 took 520 to 640 MiB
PROCESSES = 3  # the reference, the comparison, the candidate
GIANT_BYTES = 1 << 30  # of inputs and what is compared: more is made anew when it is needed
HOG = 2  # times what the reference takes: more is the candidate's fault where memory runs out
SETS = 2  # input sets that lie there all the time where they are smaller


@dataclass(frozen=True, slots=True)
class Demand:
    """What one call of the reference takes, in bytes: `inputs`, `outputs` and `parameters`, all at its height
    (`working`). `remade`: inputs come out the same at a second draw. So many `baselines` take turns with the
    candidate."""

    inputs: int
    outputs: int
    parameters: int
    working: int
    remade: bool = True
    baselines: int = 1

    @property
    def needed(self) -> int:
        """Bytes of all processes together; outputs that stay do so in double precision."""
        goes = self.remade and self.inputs + self.outputs > GIANT_BYTES
        stays = 0 if goes else SETS * (self.inputs + 2 * self.outputs)
        further = self.baselines - 1
        beside = (PROCESSES + further) * PROCESS_BYTES + further * (self.inputs + self.outputs + self.parameters)
        return TIMES * self.working + stays + beside

    @property
    def allowed(self) -> int:
        """Bytes of them that a candidate may take."""
        return 2 * self.working


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
