"""The wire's keys in `_meta`, which programs write and read, and no model is shown."""

from typing import Any, Literal

AHEAD = "ncu-server/ahead"
"""Of a progress notification: how many are ahead, an integer; there exactly while the call waits its turn, for a core
to build on or for the device."""

WHOLE = "ncu-server/whole"
"""Of a call of profile_kernel: where it is true, reports come in full; else they are cut to what a model can take."""

STAGE = "ncu-server/stage"
"""Of a progress notification: what the call is at, one of STAGES."""

Stage = Literal["device", "building", "waiting", "preparing"]
STAGES: tuple[Stage, ...] = ("device", "building", "waiting", "preparing")
"""`device`: it has the device to itself. `building`: a compiler works for it. `waiting`: for a core to build on, or for
the device. `preparing`: anything else."""


def about(stage: Stage, ahead: int | None) -> dict[str, Any]:
    """The `_meta` of a progress notification."""
    return {STAGE: stage} | ({AHEAD: ahead} if ahead is not None else {})
