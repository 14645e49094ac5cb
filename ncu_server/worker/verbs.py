"""What the server asks its workers: each verb with its arguments, the descriptors beside them, and its answer.

Both ends import this: the server sends a verb with `Child.ask`, and the role's method of the verb's name (see
ncu_server.worker.roles) takes its fields as keywords. What is written here is all that crosses, but for the bytes in
shared memory. The server checks the form of every answer; that of a candidate's process may be anything else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ncu_server.sandbox.shared_memory import Spec
from ncu_server.sandbox.verb import Verb
from ncu_server.worker.answers import (
    Built,
    CallContract,
    Checked,
    Chip,
    Chosen,
    Compared,
    Difference,
    Drawn,
    Effects,
    Expected,
    How,
    LaunchTime,
    Library,
    Measured,
    Opened,
    Profiled,
    Room,
    Sharpened,
    Slices,
    Traced,
    Units,
    Warmed,
    Work,
)
from ncu_server.worker.timing_verbs import TIMING_VERBS


@dataclass(frozen=True)
class OpenReference(Verb[Opened]):
    """Build the problem's model, through torch.compile where `mode` is one, and `training` or not where that is known.
    Memory: the constructor's arguments."""

    source: str
    device: str
    parameter_seed: int
    mode: str | None
    training: bool | None = None


@dataclass(frozen=True)
class Draw(Verb[Drawn]):
    """Inputs that the function `variant` gives under a seed, in the host's memory where `on_host`. Memory: the
    inputs."""

    variant: str
    input_seed: int
    on_host: bool = False


@dataclass(frozen=True)
class Sharpen(Verb[Sharpened]):
    """A set of other statistics, made of what Draw gives under `draw_seed`, but for what is `still`. What it is to be
    is tried out, unless `how` says it. Memory: for it."""

    variant: str
    draw_seed: int
    input_seed: int
    still: list[int]
    how: How | None = None


@dataclass(frozen=True)
class DrawsAgain(Verb[bool]):
    """Whether what Draw gives under this seed is the same as `inputs`. Memory: the inputs."""

    inputs: Spec
    variant: str
    input_seed: int


@dataclass(frozen=True)
class Hole(Verb[Spec | None]):
    """NaN in some rows; None where the reference does not show them. Memory: the inputs, what is made of them."""

    inputs: Spec
    input_seed: int
    still: list[int]


@dataclass(frozen=True)
class Choose(Verb[Chosen]):
    """Which of these structures, with another plain value, the reference takes. Memory: the inputs."""

    inputs: Spec
    structures: list[Any]


@dataclass(frozen=True)
class Stretch(Verb[Spec | None]):
    """Floats far beyond those drawn; None where there are none. Memory: the inputs, what is made of them."""

    inputs: Spec
    still: list[int]


@dataclass(frozen=True)
class Mutate(Verb[Spec]):
    """A set that differs in few elements from others made so. Memory: the inputs, what is made of them."""

    inputs: Spec
    still: list[int]
    nonce: int


@dataclass(frozen=True)
class Still(Verb[list[int]]):
    """The inputs of which no value may change. Memory: the inputs."""

    inputs: Spec


@dataclass(frozen=True)
class CountWork(Verb[Work]):
    """What a call must do. Memory: the inputs."""

    inputs: Spec


@dataclass(frozen=True)
class Contract(Verb[CallContract]):
    """What a call takes and gives; `kept` are the numbers of plain values that no check varies. Memory: the inputs."""

    inputs: Spec
    kept: list[int]


@dataclass(frozen=True)
class Trace(Verb[Traced]):
    """The graph. Memory: the inputs."""

    inputs: Spec


@dataclass(frozen=True)
class CompileAhead(Verb[bool]):
    """Compile for the staged inputs without the device, as far as that goes; whether all of it did."""


@dataclass(frozen=True)
class Kernels(Verb[list[str]]):
    """What torch.compile launches, in order."""


@dataclass(frozen=True)
class LaunchTimes(Verb[list[LaunchTime]]):
    """What a call on the staged inputs launches, in order, with its times."""


@dataclass(frozen=True)
class MeasureChip(Verb[Chip]):
    """What plans for a GPU hang on; see worker.chip."""


@dataclass(frozen=True)
class Features(Verb[list[str]]):
    """What the device is, in words."""


@dataclass(frozen=True)
class Free(Verb[Room]):
    """How much of the device's memory is free."""


@dataclass(frozen=True)
class Peaks(Verb[dict[str, float | None]]):
    """What the device reaches, by the names of wire.evaluation.Peaks."""


@dataclass(frozen=True)
class Expect(Verb[Expected]):
    """What the reference gives; `effects` where they are known from other inputs. Memory: the inputs, for it."""

    inputs: Spec
    effects: Effects | None = None


@dataclass(frozen=True)
class ExpectAgain(Verb[Spec]):
    """What Expect has given before for the same inputs, along the same `slices`. Memory: the inputs, for it."""

    inputs: Spec
    effects: Effects
    slices: Slices | None


@dataclass(frozen=True)
class Moved(Verb[list[float]]):
    """How far each tensor that is seen moves where operands of products are rounded. Memory: the inputs."""

    inputs: Spec
    effects: Effects


@dataclass(frozen=True)
class MeasureCall(Verb[Measured]):
    """What one call takes of the memory. Memory: the inputs."""

    inputs: Spec


@dataclass(frozen=True)
class Differing(Verb[list[Difference]]):
    """Parameters that a candidate has otherwise, `but` those that calls change. Memory: the candidate's."""

    theirs: Spec
    but: list[str]


@dataclass(frozen=True)
class ExpectWith(Verb[Expected]):
    """As Expect, with the candidate's parameters where they differ, `fill` where it has none. Memory: the inputs, what
    is expected, the candidate's parameters."""

    inputs: Spec
    effects: Effects
    theirs: Spec
    found: list[Difference]
    fill: float


@dataclass(frozen=True)
class Lend(Verb[None]):
    """A copy of the inputs for one candidate. Memory: the inputs, the copy."""

    inputs: Spec


@dataclass(frozen=True)
class Slot(Verb[None]):
    """Room on the device for what one candidate gives. Memory: for it."""

    size: int


@dataclass(frozen=True)
class OpenCandidate(Verb[None]):
    """Load a candidate with its libraries and build `ModelNew`; `kernels` is where Triton keeps what the build
    compiled, `training` the mode of the reference. Memory: the constructor's arguments."""

    source: str
    device: str
    parameter_seed: int
    arguments: Spec
    libraries: list[Library]
    kernels: str | None
    training: bool | None = None


@dataclass(frozen=True)
class Practise(Verb[None]):
    """Call on inputs that decide nothing. Memory: each of them."""

    inputs: list[Spec]


@dataclass(frozen=True)
class Check(Verb[Checked]):
    """Call once on poisoned memory; `room` is what the reference's output takes. Memory: the inputs, what is seen."""

    inputs: Spec
    effects: Effects
    room: int


@dataclass(frozen=True)
class Fresh(Verb[bool]):
    """Whether two calls, whose outputs are held at once, give these in memory of their own. Memory: the inputs."""

    inputs: Spec
    effects: Effects


@dataclass(frozen=True)
class Parameters(Verb[Spec]):
    """What the model holds. Memory: for it."""


@dataclass(frozen=True)
class Profile(Verb[Profiled]):
    """Whose code spends the time of a call. Memory: the inputs."""

    inputs: Spec
    effects: Effects


@dataclass(frozen=True)
class ProfileAnew(Verb[Profiled]):
    """The same of a model made anew. Memory: the inputs."""

    inputs: Spec
    effects: Effects


@dataclass(frozen=True)
class Remake(Verb[bool]):
    """Call a model made anew; whether it calls functions of its own. Memory: the inputs."""

    inputs: Spec


@dataclass(frozen=True)
class Silence(Verb[float]):
    """The share of the output that the candidate's own kernels decide; comes after Remake. Memory: the inputs."""

    inputs: Spec
    moves: bool


@dataclass(frozen=True)
class Build(Verb[Built]):
    """Import a candidate where compilers may run."""

    source: str
    directory: str


@dataclass(frozen=True)
class Examine(Verb[Built]):
    """As Build, with variables for the compilers, whose words are kept."""

    source: str
    directory: str
    variables: dict[str, str]


@dataclass(frozen=True)
class Words(Verb[list[str]]):
    """What the compilers said in Build or Examine."""


@dataclass(frozen=True)
class Warm(Verb[Warmed]):
    """Call what was built on inputs that decide nothing; what that made. Memory: constructor's arguments, inputs."""

    device: str
    parameter_seed: int
    arguments: Spec
    inputs: list[Spec]
    training: bool | None = None


@dataclass(frozen=True)
class Compare(Verb[list[Compared]]):
    """Each tensor against what is expected of it. Memory: what is expected, what was got."""

    expected: Spec
    got: Spec
    units: list[Units | None]
    bound: float


@dataclass(frozen=True)
class Identical(Verb[bool]):
    """Whether two sets are the same, bit by bit. Memory: both."""

    one: Spec
    other: Spec


VERBS: dict[str, type[Verb[Any]]] = TIMING_VERBS | {kind.name(): kind for kind in Verb.__subclasses__()}
