"""What reference and candidate are timed by, alike."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from ncu_server.sandbox.shared_memory import Spec
from ncu_server.worker.answers import Inputs
from ncu_server.worker.tensors import put, read
from ncu_server.worker.timing.devices import Device
from ncu_server.worker.timing.stage import Stage, Write

Method = TypeVar("Method", bound=Callable[..., Any])


def trimmed(verb: Method) -> Method:
    """The verb of a role that has a `_device`, after which other processes have the memory that it has freed."""

    @functools.wraps(verb)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return verb(self, *args, **kwargs)
        finally:
            with contextlib.suppress(RuntimeError):  # of a device that a candidate's call has left broken
                self._device.trim()

    return cast(Method, run)


class TimedSide:
    """A role that has been staged."""

    _stage: Stage
    _device: Device
    _write: Write = staticmethod(put)

    def unstage(self, fds: list[int]) -> None:
        """Let go of what was set up for timing."""
        vars(self).pop("_stage", None)
        self._device.release()

    def hollow(self, fds: list[int]) -> None:
        """Hold no values of what was set up for timing; see Stage.hollow."""
        self._stage.hollow()
        self._device.release()

    def block(self, fds: list[int], nonce: int, count: int, group: int = 1, inputs: Inputs = "cold") -> list[float]:
        """Time `count` groups of calls in microseconds; see Stage.block."""
        return self._stage.block(nonce, count, group, inputs)

    def take_unseen(self, fds: list[int], inputs: list[Spec]) -> None:
        """Take input sets that no call has seen; see Stage.take_unseen."""
        self._stage.take_unseen([read(fd, spec) for fd, spec in zip(fds, inputs, strict=True)], inputs[0])

    def snapshot(self, fds: list[int], window: float | None = None, last: bool = True) -> Spec:
        """Write what the kept call gave; see Stage.snapshot."""
        spec = self._stage.snapshot(fds[0], window, last, self._write)
        if self._stage.frugal:
            self._device.release()
        return spec
