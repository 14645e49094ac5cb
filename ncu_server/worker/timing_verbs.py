"""What the server asks of a process that is timed; see ncu_server.worker.verbs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ncu_server.sandbox.shared_memory import Spec
from ncu_server.sandbox.verb import Verb
from ncu_server.worker.answers import Effects, Inputs, Slices, Staged


@dataclass(frozen=True)
class Stage(Verb[Staged]):
    """Set up rotating inputs for timing. Memory: the inputs."""

    inputs: Spec
    effects: Effects


@dataclass(frozen=True)
class StageLent(Verb[Staged]):
    """As Stage, frugal, of inputs that are this process's alone. Memory: the inputs."""

    inputs: Spec
    effects: Effects


@dataclass(frozen=True)
class StageDrawn(Verb[Staged]):
    """As Stage, frugal, of what Draw gives under this seed, which lies nowhere else. `inputs` are their layout."""

    inputs: Spec
    effects: Effects
    variant: str
    input_seed: int


@dataclass(frozen=True)
class LendStaged(Verb[Spec]):
    """As Lend, of what is staged. Memory: the copy."""


@dataclass(frozen=True)
class Unstage(Verb[None]):
    """Let go of what was set up for timing."""


@dataclass(frozen=True)
class Hollow(Verb[None]):
    """Keep of what was set up for timing no more than CompileAhead asks for, which holds no memory."""


@dataclass(frozen=True)
class Block(Verb[list[float]]):
    """Microseconds of a call in each of `count` groups of `group` calls."""

    nonce: int
    count: int
    group: int = 1
    inputs: Inputs = "cold"


@dataclass(frozen=True)
class TakeUnseen(Verb[None]):
    """Take input sets that no call has seen, for the next block. Memory: each of them."""

    inputs: list[Spec]


@dataclass(frozen=True)
class Snapshot(Verb[Spec]):
    """What the kept call gave and changed, whole, or of each tensor a stretch at `window` (0 to 1); forgotten after the
    `last` whole one. Memory: for it."""

    window: float | None = None
    last: bool = True


@dataclass(frozen=True)
class KeptInputs(Verb[Spec]):
    """What the kept call was given. Memory: for it."""


@dataclass(frozen=True)
class ExpectKept(Verb[Spec]):
    """What is expected of the inputs of the kept call, computed along `slices`; `inputs` are those as they are laid
    out. Memory: what is expected."""

    inputs: Spec
    slices: Slices


TIMING_VERBS: dict[str, type[Verb[Any]]] = {kind.name(): kind for kind in Verb.__subclasses__()}
