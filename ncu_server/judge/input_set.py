"""A secret input set of a problem, and what is expected of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ncu_server.sandbox.shared_memory import Shared
from ncu_server.worker.answers import Effects, Expected, How, Memory, Seen, Units, Work

# In words: what the judge has made of what was drawn, so that nobody looks for it in `get_inputs`.
PLACES: dict[How, str] = {
    "as drawn": "on inputs as drawn{of}",
    "sharper": "on inputs{of} that the judge made sharper",
    "drawn again": "on inputs{of} drawn again",
    "32 times as large": "on inputs{of} that the judge made 32 times as large",
    "with another plain value": "on inputs as drawn{of}, but for {change}",
}
LOOSE = 64.0  # how much larger the unit of error is for inputs beyond what was drawn: what fails there fails wholly


@dataclass(slots=True)
class InputSet:
    """One secret input set and what is expected of it; `units` are its tensors' (see worker.checking.tolerance).

    `variant` is the problem's function that gave the inputs. They are as it gave them, or sharper, or far larger, or
    with a plain value changed, of which `change` tells; what is drawn again is checked, and not timed. `memory` is what
    the reference takes for them. `unseen` are further ones that only timed calls see. `holed` are the same with NaN in
    some rows, which whatever reads them shows.
    """

    variant: str
    how: How
    inputs: Shared
    expected: Shared
    tensors: list[Seen] = field(default_factory=list)
    units: list[Units | None] = field(default_factory=list)
    effects: Effects = field(default_factory=lambda: Effects(inputs=[], buffers=[], state=[], still=[]))
    fresh: bool = True
    unseen: list[Shared] = field(default_factory=list)
    work: Work | None = None
    holed: Shared | None = None
    change: str = ""
    memory: Memory | None = None

    @property
    def where(self) -> str:
        """In words, for the candidate's log: on which inputs, and what the judge has put into them by itself."""
        of = "" if self.variant == "get_inputs" else f" of {self.variant}"
        return PLACES[self.how].format(of=of, change=self.change)

    @property
    def elements(self) -> tuple[int, int]:
        """How many elements the inputs have, and what is compared."""
        given = sum(math.prod(t["shape"]) for t in self.inputs.spec["tensors"])
        return given, sum(math.prod(t["shape"]) for t in self.tensors)

    @property
    def names(self) -> list[str]:
        """What each compared tensor is."""
        return [t["name"] for t in self.tensors]

    @property
    def empty(self) -> bool:
        """Whether nothing is compared, or all tensors among the inputs have no element."""
        given, compared = self.elements
        return not compared or (not given and bool(self.inputs.spec["tensors"]))

    def keep(self, answer: Expected) -> Expected:
        """Keep what the reference's process says is expected."""
        self.expected.seal(answer["stored"])
        self.tensors, self.units = answer["tensors"], answer["units"]
        self.effects, self.fresh, self.memory = answer["effects"], answer["fresh"], answer["memory"]
        return answer

    def loosen(self) -> None:
        """Make the units of error LOOSE times as large."""
        for units in filter(None, self.units):
            units["levels"] = [[ceiling, LOOSE * unit] for ceiling, unit in units["levels"]]

    def close(self) -> None:
        for memory in (self.inputs, self.expected, self.holed, *self.unseen):
            if memory:
                memory.close()


def same_effects(effects: Effects, others: Effects) -> bool:
    """Whether the same inputs and buffers are changed."""
    return effects["inputs"] == others["inputs"] and effects["buffers"] == others["buffers"]
