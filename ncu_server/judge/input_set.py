"""A secret input set of a problem, and what is expected of it."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ncu_server.rules import precision
from ncu_server.rules.precision import Precision
from ncu_server.rules.ways import Product
from ncu_server.sandbox.shared_memory import ALIGNMENT, Shared, Spec
from ncu_server.wire.evaluation import Inputs
from ncu_server.worker.answers import Effects, Expected, How, Memory, Seen, Slices, Units, Work
from ncu_server.worker.verbs import Draw

# In words: what the judge has made of what was drawn, so that nobody looks for it in `get_inputs`.
PLACES: dict[How, str] = {
    "as drawn": "on inputs as drawn{of}",
    "sharper": "on inputs{of} that the judge made sharper",
    "drawn again": "on inputs{of} drawn again",
    "32 times as large": "on inputs{of} that the judge made 32 times as large",
    "with another plain value": "on inputs as drawn{of}, but for {change}",
}
FLOAT_MAX = sys.float_info.max
LOOSE = 64.0  # how much larger the unit of error is for inputs beyond what was drawn: what fails there fails wholly


@dataclass(frozen=True, slots=True)
class Recipe:
    """How secret inputs were made: drawn, and where `sharpen` is there changed after."""

    draw: Draw
    sharpen: tuple[int, list[int], How | None] | None = None
    """The seed, the inputs that stay as drawn, and what came of it where it was made before; see verbs.Sharpen."""
    structure: dict[str, Any] | None = None
    """The tree in place of the one that is drawn, with other plain values."""

    def changed(self, spec: Spec) -> Spec:
        """The spec with the recipe's tree."""
        return {**spec, "structure": self.structure} if self.structure else spec


OTHERS: dict[How, Inputs] = {"sharper": "hard", "32 times as large": "far"}
"""What a client is told of input sets that were changed."""


@dataclass(slots=True)
class InputSet:
    """One secret input set and what is expected of it; `units` are its tensors', and `precision` what is behind them
    (see worker.checking.tolerance); `product` is the call's largest of float32, where there is one.

    `variant` is the problem's function that gave the inputs. They are as it gave them, or sharper, or far larger, or
    with a plain value changed, of which `change` tells; what is drawn again is checked, and not timed. `memory` is what
    the reference takes for them. `unseen` are further ones that only timed calls see. `holed` are the same with NaN in
    some rows, which whatever reads them shows. Inputs of gigabytes are there while they have `users`, and made again as
    `made` tells. `moved` says how far what is compared moves with rounded operands, once that is known. `slices` tells
    how what is expected was computed.
    """

    variant: str
    how: How
    inputs: Shared
    expected: Shared
    tensors: list[Seen] = field(default_factory=list)
    units: list[Units | None] = field(default_factory=list)
    precision: list[Precision | None] = field(default_factory=list)
    product: Product | None = None
    effects: Effects = field(default_factory=lambda: Effects(inputs=[], buffers=[], state=[], still=[]))
    fresh: bool = True
    unseen: list[Shared] = field(default_factory=list)
    work: Work | None = None
    moved: list[float] | None = None
    holed: Shared | None = None
    change: str = ""
    made: Recipe | None = None
    users: int = 0
    memory: Memory | None = None
    slices: Slices | None = None

    @property
    def where(self) -> str:
        """In words, for the candidate's log: on which inputs, and what the judge has put into them by itself."""
        of = "" if self.variant == "get_inputs" else f" of {self.variant}"
        return PLACES[self.how].format(of=of, change=self.change)

    @property
    def kind(self) -> str:
        """In a word or two, for who is told of an error: which inputs."""
        return f"{OTHERS[self.how]} inputs" if self.how in OTHERS else f"inputs {self.how}"

    @property
    def elements(self) -> tuple[int, int]:
        """How many elements the inputs have, and what is compared."""
        given = sum(math.prod(t["shape"]) for t in self.inputs.spec["tensors"])
        return given, sum(math.prod(t["shape"]) for t in self.tensors)

    @property
    def room(self) -> int:
        """Bytes that what is compared takes where it lies in shared memory."""
        return sum(-(-t["bytes"] // ALIGNMENT) * ALIGNMENT for t in self.tensors) or 1

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
        self.tensors, self.units, self.precision = answer["tensors"], answer["units"], answer["precision"]
        self.effects, self.fresh, self.memory = answer["effects"], answer["fresh"], answer["memory"]
        self.slices = answer["slices"]
        self.product = answer["product"]
        return answer

    def widen(self, together: Sequence[InputSet]) -> None:
        """Allow each tensor what the reference errs on all these input sets; see rules.precision.widened."""
        for place, (units, one) in enumerate(zip(self.units, self.precision, strict=True)):
            others = [each for other in together for each in other.precision[place : place + 1] if each]
            if units and one and others:
                self.precision[place] = wider = precision.widened(one, others)
                factor = wider["allowed"] / one["allowed"]
                units["levels"] = [
                    [min(ceiling * factor, FLOAT_MAX), unit * factor] for ceiling, unit in units["levels"]
                ]

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
