"""What a candidate may not leave behind in its process: ways for its code to run between its calls, where no clock
stands, and ways to look at what surrounds them."""

from __future__ import annotations

import ctypes
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from ncu_server.worker import private
from ncu_server.worker.building.modules import LOADED
from ncu_server.worker.tensors import UnacceptableOutput

DeviceContext = private.take("torch.utils._device.DeviceContext")
FAULTS = (signal.SIGSEGV, signal.SIGBUS)  # memory out of reach: a handler may compute what somebody then reads
# What inputs are made and outputs kept with.
OPERATORS = (
    "clone", "copy_", "mul.out", "sub.out", "mul_.Tensor", "add_.Tensor", "clamp_", "flip", "empty.memory_format",
    "empty_strided", "_to_copy", "zero_", "sum.IntList_out", "as_strided", "view", "slice.Tensor", "detach",
)  # fmt: skip
STACKS = (
    (private.take("torch._C._len_torch_function_stack"), private.take("torch._C._get_function_stack_at")),
    (private.take("torch._C._len_torch_dispatch_stack"), private.take("torch._C._get_dispatch_stack_at")),
)
_dump = private.take("torch._C._dispatch_dump")
LOOKS = ("sys._getframe", "sys._current_frames", "sys.settrace", "sys.setprofile",
         "gc.get_objects", "gc.get_referrers", "gc.get_referents")  # fmt: skip
FRAMES = ("tb_frame", "gi_frame", "cr_frame", "ag_frame")
# What of the standard library hands a frame that it sees to whoever calls it: files and how their functions begin.
HAND_ON = {"inspect.py": ("",), "traceback.py": ("walk_", "_walk_"), "__init__.py": ("currentframe", "<lambda>")}


class Intact:
    """Remembers how the process was before a candidate was loaded."""

    def __init__(self) -> None:
        self._operators, self._handlers = _operators(), _handlers()

    def check(self, whole: bool = True) -> None:
        """Raises UnacceptableOutput where, just after a call, code of the candidate's would run later than it; not the
        `whole` is looked at where that takes too long."""
        if mode := next(_modes(), None):
            raise UnacceptableOutput(f"a call leaves the torch mode {mode} on, by which its code runs between calls")
        if whole and _handlers() != self._handlers:
            raise UnacceptableOutput("a call leaves a handler of memory faults, by which its code runs after it")
        if whole and _operators() != self._operators:
            raise UnacceptableOutput("the candidate replaces operators of torch, by which its code runs between calls")


def _modes() -> Iterator[str]:
    """Names of the modes through which calls of torch go, but for a default device's."""
    for count, at in STACKS:
        for place in range(count()):
            if type(mode := at(place)) is not DeviceContext:
                yield type(mode).__name__


def _handlers() -> list[int]:
    """The addresses of what handles memory faults: the first field of libc's struct sigaction."""
    room = ctypes.create_string_buffer(512)
    found = []
    for number in FAULTS:
        _sigaction(int(number), None, room)
        found.append(int.from_bytes(room.raw[: ctypes.sizeof(ctypes.c_void_p)], sys.byteorder))
    return found


_sigaction = ctypes.CDLL(None).sigaction


def _operators() -> list[str]:
    return [_dump(f"aten::{name}") for name in OPERATORS]


class IntrospectionGuard:
    """From `install` on, what is not of a library gets no look at frames and objects around it: RuntimeError."""

    def __init__(self) -> None:
        self._looking = False

    def install(self) -> None:
        sys.addaudithook(self._heard)

    def _heard(self, event: str, args: tuple[Any, ...]) -> None:
        if event not in LOOKS and not (event == "object.__getattr__" and args[1] in FRAMES):
            return
        if self._looking:
            return
        self._looking = True
        try:
            asked = args[1] if event not in LOOKS else event.rpartition(".")[2]
            stranger = not _for_a_library(sys._getframe(1), asked)
        finally:
            self._looking = False
        if stranger:
            raise RuntimeError(f"a candidate may not look at what surrounds its calls ({event})")


def _for_a_library(frame: FrameType | None, asked: str) -> bool:
    """Whether a library's own code asks, by that name, and keeps what it sees; a function that it was given does not.
    What prints a traceback goes through its frames, from the call on inwards."""
    while frame is not None and _of_a_library(frame):
        prints = "_tb" in asked and Path(frame.f_code.co_filename).name == "traceback.py"
        if not prints and asked not in frame.f_code.co_names:
            return False
        if not _hands_on(frame):
            return True
        asked = "currentframe" if frame.f_code.co_name == "<lambda>" else frame.f_code.co_name
        frame = frame.f_back
    return False


def _of_a_library(frame: FrameType) -> bool:
    """Whether its globals are those of a module that has a file on the path, or is frozen, and is not judged."""
    module = sys.modules.get(str(frame.f_globals.get("__name__")))
    file = str(getattr(module, "__file__", None) or "")
    named = Path(file).is_absolute() or frame.f_code.co_filename.startswith("<frozen")
    return module is not None and module not in LOADED and vars(module) is frame.f_globals and named


def _hands_on(frame: FrameType) -> bool:
    begins = HAND_ON.get(Path(frame.f_code.co_filename).name)
    return begins is not None and frame.f_code.co_name.startswith(begins)
