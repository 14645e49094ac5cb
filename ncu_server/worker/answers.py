"""What verbs carry and are answered with, as JSON has it; see ncu_server.worker.verbs."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import TypedDict

from ncu_server.rules.precision import Precision
from ncu_server.rules.ways import Product
from ncu_server.sandbox.shared_memory import Spec

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
    """The constructor's arguments, the functions that give inputs, what to note, the bytes that the model holds, and
    whether it is in training mode."""

    arguments: Spec
    variants: list[str]
    note: str | None
    held_bytes: int
    training: bool


class Drawn(TypedDict):
    """Inputs as the problem gives them, and what to note of how they were drawn."""

    inputs: Spec
    note: str | None


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
    the arguments alone, too) and written; `narrow` where no float has 32 bits, or the reference itself computes in
    fewer, `byte_formats` those of one byte (int8, fp8) that are given."""

    inputs: list[dict[str, Any]]
    outputs: list[dict[str, Any]]
    parameters: list[dict[str, Any]]
    flops: float
    read_bytes: float
    argument_bytes: float
    written_bytes: float
    narrow: bool
    byte_formats: list[str]


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


class Memory(TypedDict):
    """Bytes of memory; see worker.memory."""

    host_bytes: int
    device_bytes: int


class Room(TypedDict):
    """Bytes of a device's memory: what is free or held by the process that says so, and all; zeros for the host's."""

    free: int
    total: int


class Slices(TypedDict):
    """A dimension of `size` indices that a model treats by themselves, and the numbers of the inputs that have it."""

    dimension: int
    size: int
    inputs: list[int]


class Measured(TypedDict):
    """What one call of the reference takes at its height, with the model and beside the inputs; the bytes of what it
    gives and of the model; whether there is a dimension along which it can be cut, and whether its products may have
    `narrow` arithmetic."""

    memory: Memory
    outputs: int
    parameters: int
    sliceable: bool
    narrow: bool


class Expected(TypedDict):
    """What is expected of a call, `units` of error for each tensor (None asks for equality) with the `precision` behind
    them, and what a call changes.

    `product` is the float32 product that takes most operations, None where there is none.
    `fresh`: no output is a parameter or buffer itself. `finite`: numbers come of numbers. `numbers`: all outputs are.
    `degenerate` names a constant that would pass. `memory` is what a call takes at its height, with the model.
    `training`: the model's mode, which is eval where training draws
    random numbers. `slices` tells how the exact values were computed piece by piece.
    """

    stored: Spec
    tensors: list[Seen]
    units: list[Units | None]
    precision: list[Precision | None]
    product: Product | None
    effects: Effects
    fresh: bool
    finite: bool
    numbers: bool
    note: str | None
    degenerate: str | None
    memory: Memory
    training: bool
    slices: Slices | None


class Staged(TypedDict):
    """How inputs rotate; see judge.interleave.Rotation."""

    sets: int
    exceeds: bool
    flushes: bool
    changes: bool


class Checked(TypedDict):
    """What is seen of a call. `kept`: inputs that the reference leaves alone are as they were. `fresh`: no output lies
    where one of an earlier call, which is still held, lies. `memory` is what the constructor and the call take at their
    height."""

    seen: Spec
    kept: bool
    fresh: bool
    memory: Memory


class CallProfile(TypedDict):
    """Whose code spends the time of a call; see worker.authorship.profile. Microseconds of all `calls`, but for
    `least` and `outside_us`, which are of one. `overhead` is the part of `ops` and `kernels` that tiny calls cost
    whatever they compute, `tiny_elements` how many elements such calls go over in one call."""

    calls: int
    ops: dict[str, float]
    kernels: dict[str, float]
    least: dict[str, float]
    overhead: dict[str, float]
    tiny_elements: float
    own_us: float
    own_ops_us: float
    unordered_us: float
    outside_us: float
    own_done: int
    own_started: int


class LaunchTime(TypedDict):
    """Microseconds of all launches of one name in a call, and how many these are."""

    name: str
    us: float
    launches: int


class Chip(TypedDict):
    """Streaming multiprocessors; how many clusters of 2, 4 and 8 blocks fit at once with an SM for each block;
    nanoseconds of a read of idle memory; MHz of the SMs under a load of the tensor cores."""

    sms: int | None
    clusters: list[int]
    latency_ns: float | None
    tensor_mhz: float | None


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


class Warmed(TypedDict):
    """Whether the calls of a build came to their end, and the libraries that they made."""

    ended: bool
    libraries: list[Library]


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
