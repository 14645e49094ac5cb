"""A candidate's code runs in its calls, and not between them; nor does it look at what surrounds them."""

import pytest

from tests.support.edits import edit
from tests.support.measuring import QUICK, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")

MODE = """
from torch.overrides import TorchFunctionMode


class Later(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


"""
DISPATCH = edit(edit(MODE, "torch.overrides", "torch.utils._python_dispatch"), "Function", "Dispatch", times=2)
DISPATCH = edit(DISPATCH, "__torch_function__", "__torch_dispatch__")
HANDLER = """
import ctypes
import signal

libc = ctypes.CDLL("libc.so.6")
handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda number: None)


"""
OPERATOR = """
library = torch.library.Library("aten", "IMPL")
library.impl("copy_", lambda to, of, non_blocking=False: to, "CPU")


"""
LATE = "a call leaves the torch mode Later on"


@pytest.mark.parametrize(
    ("module", "call", "status", "words"),
    [
        (MODE, "Later().__enter__()", "wrong", LATE),
        (DISPATCH, "Later().__enter__()", "wrong", LATE),
        (MODE, "with Later(): pass", "passed", ""),
        ("torch.set_default_device('cpu')\n", "pass", "passed", ""),
        (HANDLER, "libc.signal(11, handler)", "wrong", "a handler of memory faults"),
        (HANDLER, "libc.signal(10, handler)", "passed", ""),
        (OPERATOR, "pass", "wrong", "replaces operators of torch"),
        ("import sys\n", "sys._getframe()", "run_error", "may not look at what surrounds"),
        ("import inspect\n", "inspect.currentframe()", "run_error", "may not look at what surrounds"),
        ("import inspect\n", "inspect.stack()", "run_error", "may not look at what surrounds"),
        ("import gc\n", "gc.get_objects()", "run_error", "may not look at what surrounds"),
        ("import sys\n", "list(map(sys._getframe, [0]))", "run_error", "may not look at what surrounds"),
        ("import traceback\n", "next(traceback.walk_stack(None))", "run_error", "may not look at what surrounds"),
        ("import sys, torch.utils._pytree as tree\n", "tree.tree_map(sys._getframe, 0)", "run_error", "not look"),
        (
            "import concurrent.futures, sys\n",
            "concurrent.futures.ThreadPoolExecutor().submit(sys._current_frames).result()",
            "run_error",
            "may not look",
        ),
        (
            "import traceback\n",
            "traceback.StackSummary.extract(traceback.walk_stack(None), capture_locals=True)",
            "run_error",
            "may not look",
        ),
        (
            "import sys\ndef look():\n    return sys._getframe()\n"
            "look.__code__ = look.__code__.replace(co_filename='/usr/lib/python3/typing.py')\n",
            "look()",
            "run_error",
            "may not look",
        ),
        ("def frame():\n    yield\n", "frame().gi_frame", "run_error", "may not look at what surrounds"),
        (
            "import collections, logging, traceback, warnings\n",
            "logging.warning('one'); warnings.warn('two'); collections.namedtuple('P', 'x')\n"
            "        try:\n            raise ValueError('three')\n"
            "        except ValueError:\n            traceback.print_exc(); logging.exception('four')",
            "passed",
            "",
        ),
    ],
)  # fmt: skip
async def test_what_would_run_between_calls_or_looks_around_is_found(
    server: Server, module: str, call: str, status: str, words: str
) -> None:
    candidate = edit(QUICK, "class ModelNew", f"{module}class ModelNew")
    candidate = edit(
        candidate, "        out = torch.empty_like(x)", f"        {call}\n        out = torch.empty_like(x)"
    )
    assert call in candidate
    result = await server.evaluate(candidate)
    assert (result["status"], words in result["log"]) == (status, True), result["log"]
