"""Host memory that runs out: said in one sentence with bytes, and whose fault it is."""

import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio

from ncu_server.compiler.builds import STARVED
from ncu_server.errors import Code, Refusal
from ncu_server.judge.candidate import Objection, starved
from ncu_server.sandbox import limits
from ncu_server.sandbox.child import ChildStarved
from tests.support.edits import edit
from tests.support.measuring import QUICK, SCALE_ADD, Server, opened, server_parameters

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def small(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """A server whose children may have two gigabytes each."""
    parameters = server_parameters(tmp_path_factory.mktemp("small"))
    parameters.env = {**(parameters.env or {}), limits.CAP_VARIABLE: "2"}
    async with opened(parameters) as found:
        yield found


STEPS = {
    "the module": ("class Model(", "{}\nclass Model("),
    "the constructor": ("super().__init__()\n", "super().__init__()\n        {}\n"),
    "get_inputs": ("def get_inputs():\n", "def get_inputs():\n    {}\n"),
    "forward": ("def forward(self, x, y):\n", "def forward(self, x, y):\n        {}\n"),
}
TAKES = {
    "torch": "kept = torch.zeros(1 << 30)",
    "numpy": "import numpy; kept = numpy.ones(1 << 29)",
    "Python": "kept = bytearray(1 << 32)",
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("taker", TAKES)
async def test_a_problem_that_takes_too_much_is_refused_for_room(small: Server, step: str, taker: str) -> None:
    old, new = STEPS[step]
    problem = edit(SCALE_ADD, old, new.format(TAKES[taker]))
    refusal = await small.refusal("evaluate_kernel", candidate=QUICK, problem=problem, target="cpu")
    assert refusal.startswith("NO_ROOM: ") and "2.0 GiB" in refusal, refusal


async def test_a_candidate_that_is_refused_memory_gets_a_verdict(small: Server) -> None:
    for taker in TAKES.values():
        forward = await small.evaluate(edit(QUICK, "return out", f"{taker}\n        return out"))
        assert (forward["status"], "2.0 GiB" in forward["log"]) == ("run_error", True), forward["log"]
        build = await small.evaluate(f"import torch\n{taker}\n{QUICK}")
        assert (build["status"], "2.0 GiB" in build["log"]) == ("build_error", True), build["log"]
    assert (await small.evaluate(QUICK))["status"] == "passed"


def _own_groups() -> Iterator[Path]:
    """Folders of this process's control group with memory among what they bound, in either version."""
    for row in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = row.split(":", 2)
        if controllers in ("", "memory"):
            yield limits.GROUPS / controllers / path.strip("/")


@contextlib.contextmanager
def _bounded_group(limit: int) -> Iterator[Path]:
    """A control group of its own that may have `limit` bytes; skips where none can be made."""
    for above in _own_groups():
        group = above / f"bounded-{os.getpid()}"
        with contextlib.suppress(OSError):
            group.mkdir()
            bounds = [group / name for name in ("memory.limit_in_bytes", "memory.max")]
            if not any(bound.exists() for bound in bounds):
                group.rmdir()
                continue
            next(bound for bound in bounds if bound.exists()).write_text(str(limit))
            yield group
            return
    pytest.skip("no control group can be made here")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def crowded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """A server on a machine of two gigabytes, whose children may have more by their own bound."""
    with _bounded_group(2 << 30) as group:
        parameters = server_parameters(tmp_path_factory.mktemp("crowded"))
        parameters.env = {**(parameters.env or {}), limits.CAP_VARIABLE: "16"}
        joins = f'echo $$ > {group / "cgroup.procs"} && exec "$0" "$@"'
        parameters.args = ["-c", joins, parameters.command, *parameters.args]
        parameters.command = "sh"
        async with opened(parameters) as found:
            yield found
        with contextlib.suppress(OSError):  # it stays while a process of it ends
            group.rmdir()


RAN_OUT = "GiB when the machine ran out of memory"
HOARDS = "kept = torch.ones(1 << 30)"


async def test_a_reference_that_the_kernel_ends_is_no_room(crowded: Server) -> None:
    for old, new in (STEPS["get_inputs"], STEPS["forward"]):
        problem = edit(SCALE_ADD, old, new.format(HOARDS))
        refusal = await crowded.refusal("evaluate_kernel", candidate=QUICK, problem=problem, target="cpu")
        assert refusal.startswith("NO_ROOM: ") and RAN_OUT in refusal, refusal


async def test_a_candidate_that_the_kernel_ends_gets_a_verdict(crowded: Server) -> None:
    forward = await crowded.evaluate(edit(QUICK, "return out", f"{HOARDS}\n        return out"))
    assert (forward["status"], RAN_OUT in forward["log"]) == ("run_error", True), forward["log"]
    build = await crowded.evaluate(f"import torch\n{HOARDS}\n{QUICK}")
    assert (build["status"], RAN_OUT in build["log"]) == ("build_error", True), build["log"]
    assert (await crowded.evaluate(QUICK))["status"] == "passed"


async def test_a_compiler_that_the_kernel_ends_is_said_to_lack_memory(crowded: Server) -> None:
    repeats = r'asm(".rept 300000000\nnop\n.endr");'  # which the assembler writes out before it reads it
    result = await crowded.evaluate(edit(QUICK, "#include <cstdint>", f"#include <cstdint>\n{repeats}"))
    assert (result["status"], STARVED in result["log"]) == ("build_error", True), result["log"]


async def test_a_candidate_that_ends_itself_is_not_said_to_lack_memory(small: Server) -> None:
    ends = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    result = await small.evaluate(edit(QUICK, "return out", f"{ends}\n        return out"))
    assert (result["status"], RAN_OUT in result["log"]) == ("run_error", False), result["log"]
    assert signal.SIGKILL.name in result["log"]


async def test_a_candidate_of_the_reference_s_size_is_not_to_blame() -> None:
    reference = SimpleNamespace(pid=os.getpid())
    attempt: Any = SimpleNamespace(prepared=SimpleNamespace(eager=reference))
    child: Any = None
    beside = limits.peak_bytes(os.getpid())
    ours = starved(attempt, ChildStarved(child, "it was killed", beside), "in a call")
    its = starved(attempt, ChildStarved(child, "it was killed", 3 * beside), "in a call")
    assert isinstance(ours, Refusal) and ours.code is Code.NO_ROOM
    assert isinstance(its, Objection) and its.status == "run_error"
