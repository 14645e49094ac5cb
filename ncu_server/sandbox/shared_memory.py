"""Anonymous shared memory that children write and read by descriptor: of the host, or of a device."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from typing import Any

from typing_extensions import TypedDict

F_ADD_SEALS = 1033
SEAL_SIZE = 0x2 | 0x4  # shrink, grow (linux/fcntl.h)
ALIGNMENT = 64  # bytes, of each tensor
SEALS = SEAL_SIZE | 0x8  # write


class TensorLayout(TypedDict):
    """Where a tensor lies in shared memory: `strides` in elements, `offset` and `bytes` in bytes."""

    shape: list[int]
    dtype: str
    strides: list[int]
    offset: int
    bytes: int


class Spec(TypedDict):
    """A tree of tensors in shared memory: `structure` numbers its `tensors` in order; see ncu_server.worker.tensors."""

    structure: dict[str, Any]
    tensors: list[TensorLayout]
    bytes: int


EMPTY: Spec = {"structure": {}, "tensors": [], "bytes": 0}


class Shared:
    """One memfd and, once a child has filled it, the spec that says what lies where.

    A process of ours may put device memory in its place, of `room` bytes. That has no seal: what a trusted process
    reads is never given to a candidate's.
    """

    def __init__(self, name: str) -> None:
        self.fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self.spec, self.room = EMPTY, 0

    @property
    def on_device(self) -> bool:
        return self.room > 0

    def replace(self, fd: int, room: int) -> None:
        """Take device memory in place of the host's."""
        self.close()
        self.fd, self.room = fd, room

    def seal(self, spec: Spec) -> None:
        """Note the spec; nobody can change bytes of the host any more."""
        self.spec = spec
        if not self.on_device:
            fcntl.fcntl(self.fd, F_ADD_SEALS, SEALS)

    def again(self, spec: Spec) -> Shared:
        """The same bytes under another spec, to be closed by itself."""
        other = Shared.__new__(Shared)
        other.fd, other.spec, other.room = os.dup(self.fd), spec, self.room
        return other

    def freeze(self) -> int:
        """Keep the size as it is from now on, and say it: whoever maps the memory meets no hole."""
        if self.on_device:
            return self.room
        fcntl.fcntl(self.fd, F_ADD_SEALS, SEAL_SIZE)
        return os.fstat(self.fd).st_size

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Calls of a candidate that decide nothing: what constructs it, and inputs that are not the secret ones.

    `problem` is the problem's source, `training` the mode of its model.
    """

    problem: str
    device: str
    parameter_seed: int
    arguments: Shared
    inputs: list[Shared]
    training: bool | None = None

    @property
    def memories(self) -> list[Shared]:
        """The arguments', then those of the inputs."""
        return [self.arguments, *self.inputs]

    @property
    def specs(self) -> list[Spec]:
        """Of the inputs."""
        return [one.spec for one in self.inputs]
