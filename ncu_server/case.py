"""A secret input set of a problem, and what is expected of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ncu_server.memory import Shared

How = Literal["as drawn", "sharper", "drawn again", "32 times as large"]
LOOSE = 64.0  # how much larger the unit of error is for inputs beyond what was drawn: what fails there fails wholly


@dataclass(slots=True)
class Case:
    """One secret input set and what is expected of it; `units` are its tensors' error budgets, as worker.budget.units.

    `variant` is the problem's function that gave the inputs. They are as it gave them, or sharper, or far larger; what
    is drawn again is checked, and not timed. `unseen` are further ones that only timed calls see.
    """

    variant: str
    how: How
    inputs: Shared
    expected: Shared
    tensors: list[dict[str, Any]] = field(default_factory=list)
    units: list[dict[str, Any] | None] = field(default_factory=list)
    effects: dict[str, Any] = field(default_factory=dict)
    fresh: bool = True
    unseen: list[Shared] = field(default_factory=list)
    work: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """In words, for the candidate's log."""
        which = "" if self.variant == "get_inputs" else f" of {self.variant}"
        return self.how + which

    @property
    def names(self) -> list[str]:
        """What each compared tensor is."""
        return [t["name"] for t in self.tensors]

    def loosen(self) -> None:
        """Make the units of error LOOSE times as large."""
        for units in filter(None, self.units):
            units["levels"] = [[ceiling, LOOSE * unit] for ceiling, unit in units["levels"]]

    def close(self) -> None:
        for memory in (self.inputs, self.expected, *self.unseen):
            memory.close()


def same_effects(effects: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    """Whether the same inputs and buffers are changed."""
    return all(effects[what] == others[what] for what in ("inputs", "buffers"))
