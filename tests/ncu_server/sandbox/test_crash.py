"""What is told of a crash: how the process ended, and the innermost frames that are not the interpreter's."""

import pytest

from ncu_server.sandbox.crash import FRAMES, innermost
from tests.support.edits import edit
from tests.support.measuring import QUICK, ROOT, SCALE_ADD, Server

STACK = """!!!!!!! Segfault encountered !!!!!!!
  File "./signal/../sysdeps/unix/sysv/linux/x86_64/libc_sigaction.c", line 0, in 0x00007f663fe5a04f
  File "../sysdeps/x86_64/multiarch/strlen-avx2.S", line 76, in __strlen_avx2
  File "/tmp/python-build.1/Python-3.11.7/Modules/_ctypes/_ctypes.c", line 5564, in string_at
  File "<unknown>", line 0, in ffi_call
  File "Objects/call.c", line 214, in _PyObject_MakeTpCall
  File "<unknown>", line 0, in 0xffffffffffffffff
"""


def test_of_a_stack_that_is_the_interpreter_s_alone_its_title_is_left() -> None:
    assert innermost(STACK) == "!!!!!!! Segfault encountered !!!!!!!"


def test_the_candidate_s_own_frame_stays() -> None:
    log = (ROOT / "tests" / "kernel_agent" / "prompts" / "logs" / "run_segv.log").read_text()
    text = innermost(log)
    assert "in run(tvm::ffi::TensorView" in text and "ceval" not in text
    assert len(text.splitlines()) <= 3


def test_of_many_native_frames_the_innermost_are_kept() -> None:
    frames = [f'  File "engine.cpp", line {n}, in at::step{n}()' for n in range(40)]
    assert innermost("\n".join(["died", *frames, "last words"])).splitlines() == [
        "died",
        *(frame for frame in frames[:FRAMES]),
        "last words",
    ]


def test_what_is_no_native_stack_is_left_alone() -> None:
    trace = 'Traceback (most recent call last):\n  File "candidate.py", line 3, in forward\n    x.y\nKeyError: 1'
    assert innermost(trace) == trace


@pytest.mark.asyncio(loop_scope="session")
async def test_a_problem_that_crashes_is_refused_in_few_lines(server: Server) -> None:
    crashing = edit(SCALE_ADD, "return x * self.scale", "import ctypes; ctypes.string_at(0); return x * self.scale")
    said = await server.refusal("evaluate_kernel", candidate=QUICK, problem=crashing, target="cpu")
    assert "ended in Model.forward: the process was killed by SIGSEGV" in said
    assert len(said.strip().splitlines()) <= 3
