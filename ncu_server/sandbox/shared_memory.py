"""Anonymous shared memory that children write and read by descriptor."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from typing import Any

from typing_extensions import TypedDict

F_ADD_SEALS = 1033
SEAL_SIZE = 0x2 | 0x4  # shrink, grow (linux/fcntl.h)
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
    """One memfd and, once a child has filled it, the spec that says what lies where."""

    def __init__(self, name: str) -> None:
        self.fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self.spec = EMPTY

    def seal(self, spec: Spec) -> None:
        """Note the spec; nobody can change the bytes any more."""
        self.spec = spec
        fcntl.fcntl(self.fd, F_ADD_SEALS, SEALS)

    def again(self, spec: Spec) -> Shared:
        """The same bytes under another spec, to be closed by itself."""
        other = Shared.__new__(Shared)
        other.fd, other.spec = os.dup(self.fd), spec
        return other

    def freeze(self) -> int:
        """Keep the size as it is from now on, and say it: whoever maps the memory meets no hole."""
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
    def fds(self) -> list[int]:
        """Of the arguments, then of the inputs."""
        return [self.arguments.fd, *(i.fd for i in self.inputs)]

    @property
    def specs(self) -> list[Spec]:
        """Of the inputs."""
        return [one.spec for one in self.inputs]
