"""The baselines: eager and the modes of torch.compile, how long a mode may take, and what is said of one that fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ncu_server.judge.interleave import Rotation
from ncu_server.sandbox.child import Child, ChildError, ChildTimeout

# torch.compile's mode by baseline; the module as it is has none.
BASELINES: dict[str, str | None] = {
    "eager": None,
    "compile": "default",
    "max-autotune-no-cudagraphs": "max-autotune-no-cudagraphs",
    "max-autotune": "max-autotune",
}
GRAPHED = "max-autotune"  # the mode that keeps CUDA graphs, with memory of their own
UNGRAPHED = "max-autotune-no-cudagraphs"  # the mode that tunes as it does
COMPILE_TIMEOUT_S = 600.0
FIRST_CALL_S = 60.0
"""How long an autotuning mode may tune with the device held: coordinate descent on a depthwise convolution took over
126 s of an H200."""


def first_call_s(name: str) -> float:
    """Seconds for a mode's first call: the default mode tunes nothing, and may have graphs to compile in it."""
    return FIRST_CALL_S if name in (UNGRAPHED, GRAPHED) else COMPILE_TIMEOUT_S


@dataclass(frozen=True, slots=True)
class Sides:
    """Baselines that are staged on one case, how their inputs rotate, and which do not run."""

    children: dict[str, Child]
    rotation: Rotation
    failed: dict[str, ChildError]

    @property
    def untimed(self) -> dict[str, str]:
        """Why a baseline is not there, after its name and "torch.compile"."""
        return {name: _why_not(fault) for name, fault in self.failed.items()}

    @property
    def notes(self) -> list[str]:
        return notes_of(self.untimed)


def notes_of(untimed: Mapping[str, str]) -> list[str]:
    """A sentence for each."""
    return [f"{name}: torch.compile {why}" for name, why in untimed.items()]


def _why_not(fault: ChildError) -> str:
    if isinstance(fault, ChildTimeout):
        return (
            f"is not timed, as it compiles for more than {COMPILE_TIMEOUT_S:.0f} s, or tunes for more than"
            f" {FIRST_CALL_S:.0f} s of the device"
        )
    return f"does not run on this problem: {fault.sentence}"
