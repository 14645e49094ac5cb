"""What the server asks its workers: each verb with its arguments, the descriptors beside them, and its answer.

Both ends import this: the server sends a verb with `Child.ask`, and the role's method of the verb's name (see
ncu_server.worker.roles) takes its fields as keywords. What is written here is all that crosses, but for the bytes in
shared memory. The server checks the form of every answer; that of a candidate's process may be anything else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from typing_extensions import TypedDict

from ncu_server.sandbox.shared_memory import Spec
from ncu_server.sandbox.verb import Verb

Inputs = Literal["cold", "warm", "unseen"]
"""What the calls of a block get; see worker.timing.stage.Stage.block."""

How = Literal["as drawn", "sharper", "drawn again", "32 times as large", "with another plain value"]
"""What the judge has made of the inputs that were drawn."""


class Effects(TypedDict):
    """What a call of the reference changes: inputs by number, buffers by name. `state` names all buffers that there
    are, `still` the inputs of which no value may change."""

    inputs: list[int]
    buffers: list[str]
    state: list[str]
    still: list[int]


class Units(TypedDict):
    """The unit of an element's error: that of its level, [ceiling, unit] by magnitude, the largest ceiling first; at
    least `grain` times the element. Zeros keep to the first level."""

    grain: float
    levels: list[list[float]]


class Seen(TypedDict):
    """A tensor that is compared; `bytes` is its size."""

    name: str
    shape: list[int]
    dtype: str
    bytes: int


class Difference(TypedDict):
    """A parameter or buffer of the reference that the candidate has with other values; `other` is what stands for it
    there, None where nothing does. `named`: it bears the same name."""

    name: str
    other: str | None
    named: bool


class Opened(TypedDict):
    """The constructor's arguments, the functions that give inputs, what to note, and the bytes that the model holds."""

    arguments: Spec
    variants: list[str]
    note: str | None
    held_bytes: int


class Sharpened(TypedDict):
    """Inputs of other statistics, and which."""

    inputs: Spec
    how: How


class Chosen(TypedDict):
    """The place of the structure that the reference takes; None, and why, where it takes none."""

    taken: int | None
    why: str


class Work(TypedDict):
    """Shapes, and what a call must do at least: operations of matrix products and convolutions, bytes read (those of
    the arguments alone, too) and written; `narrow` where no float has 32 bits."""

    inputs: list[dict[str, Any]]
    outputs: list[dict[str, Any]]
    parameters: list[dict[str, Any]]
    flops: float
    read_bytes: float
    argument_bytes: float
    written_bytes: float
    narrow: bool


class CallContract(TypedDict):
    """What one call takes and gives; see worker.contract."""

    takes: list[dict[str, Any]]
    gives: list[dict[str, Any]]
    leaves: list[str]
    held: list[list[Any] | None]
    form: Any
    returns: Any
    is_plain: bool
    parameters: dict[str, dict[str, Any]]
    made: Any
    mode: bool | None


class Traced(TypedDict):
    """The graph as worker.tracing.graph writes it, its operators, and one operation for each element that they give."""

    graph: dict[str, Any]
    operators: list[str]
    flops: float


class Expected(TypedDict):
    """What is expected of a call, `units` of error for each tensor (None asks for equality), and what a call changes.

    `fresh`: no output is a parameter or buffer itself. `finite`: numbers come of numbers. `numbers`: all outputs are.
    `degenerate` names a constant that would pass.
    """

    stored: Spec
    tensors: list[Seen]
    units: list[Units | None]
    effects: Effects
    fresh: bool
    finite: bool
    numbers: bool
    note: str | None
    degenerate: str | None


class Staged(TypedDict):
    """How inputs rotate; see judge.interleave.Rotation."""

    sets: int
    exceeds: bool
    flushes: bool
    changes: bool


class Checked(TypedDict):
    """What is seen of a call. `kept`: inputs that the reference leaves alone are as they were. `fresh`: no output lies
    where one of an earlier call, which is still held, lies."""

    seen: Spec
    kept: bool
    fresh: bool


class CallProfile(TypedDict):
    """Whose code spends the time of a call; see worker.authorship.profile.profiled. Microseconds of all `calls`, but
    for `least` and `outside_us`, which are of one."""

    calls: int
    ops: dict[str, float]
    kernels: dict[str, float]
    least: dict[str, float]
    own_us: float
    own_ops_us: float
    unordered_us: float
    outside_us: float
    own_done: int
    own_started: int


class Ctypes(TypedDict):
    """The libraries that were opened by ctypes, and the functions that were asked for; see ctypes_audit."""

    opened: list[str]
    named: list[str]


class Profiled(CallProfile, Ctypes):
    """Two such profiles joined; `concealed` are microseconds of one call that the second does not show."""

    concealed: dict[str, float]


class Library(TypedDict):
    """A library that a build made: `kind` says how it is loaded, `key` what asked for it."""

    kind: str
    key: str
    name: str
    path: str


class Built(TypedDict):
    """The libraries that a candidate's import made, and the classes that it defines."""

    libraries: list[Library]
    classes: list[str]


class Compared(TypedDict):
    """One tensor against what is expected: its error in units, how many of `total` elements are outside the bound, and
    the worst of them. `span` is the first and last coordinate outside, for each dimension; `zeros`, `nans` and what is
    `unwritten` are counted there."""

    error: float
    outside: int
    total: int
    index: int | None
    want: float | None
    have: float | None
    shape: list[int]
    span: list[list[int]] | None
    zeros: int
    nans: int
    unwritten: int


@dataclass(frozen=True)
class OpenReference(Verb[Opened]):
    """Build the problem's model, through torch.compile where `mode` is one. Memory: the constructor's arguments."""

    source: str
    device: str
    parameter_seed: int
    mode: str | None


@dataclass(frozen=True)
class Draw(Verb[Spec]):
    """Inputs that the function `variant` gives under a seed. Memory: the inputs."""

    variant: str
    input_seed: int


@dataclass(frozen=True)
class Sharpen(Verb[Sharpened]):
    """A set of other statistics, but for what is `still`. Memory: the inputs, what is made of them."""

    inputs: Spec
    input_seed: int
    still: list[int]


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
class Vary(Verb[Spec]):
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
class Kernels(Verb[list[str]]):
    """What torch.compile launches, in order."""


@dataclass(frozen=True)
class Features(Verb[list[str]]):
    """What the device is, in words."""


@dataclass(frozen=True)
class Peaks(Verb[dict[str, float | None]]):
    """What the device reaches, by the names of wire.evaluation.Peaks."""


@dataclass(frozen=True)
class Expect(Verb[Expected]):
    """What the reference gives; `effects` where they are known from other inputs. Memory: the inputs, what is
    expected."""

    inputs: Spec
    effects: Effects | None = None


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
class Given(Verb[Spec]):
    """What the kept call was given. Memory: for it."""


@dataclass(frozen=True)
class Stage(Verb[Staged]):
    """Set up rotating inputs for timing. Memory: the inputs."""

    inputs: Spec
    effects: Effects


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
class OpenCandidate(Verb[None]):
    """Load a candidate with its libraries and build `ModelNew`; `kernels` is where Triton keeps what the build
    compiled. Memory: the constructor's arguments."""

    source: str
    device: str
    parameter_seed: int
    arguments: Spec
    libraries: list[Library]
    kernels: str | None


@dataclass(frozen=True)
class Practise(Verb[None]):
    """Call on inputs that decide nothing. Memory: each of them."""

    inputs: list[Spec]


@dataclass(frozen=True)
class Check(Verb[Checked]):
    """Call once on poisoned memory. Memory: the inputs, what is seen."""

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
    """What the compilers said in Examine."""


@dataclass(frozen=True)
class Warm(Verb[bool]):
    """Call what was built on inputs that decide nothing; whether the calls came to their end. Memory: the constructor's
    arguments, each of the inputs."""

    device: str
    parameter_seed: int
    arguments: Spec
    inputs: list[Spec]


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


VERBS: dict[str, type[Verb[Any]]] = {kind.name(): kind for kind in Verb.__subclasses__()}
