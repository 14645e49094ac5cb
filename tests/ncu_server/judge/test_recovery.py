"""Whose fault? Processes of ours that are lost are set up anew; what a candidate does wrong stays its own."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.support.edits import edit
from tests.support.measuring import QUICK as HONEST
from tests.support.measuring import SCALE_ADD, Server, command, descendants

pytestmark = pytest.mark.asyncio(loop_scope="session")


def fork_servers() -> set[int]:
    """Processes below this one that run the fork server's bootstrap and whose parent is a server."""
    found = {p for p in descendants(os.getpid()) if any(b"worker import forkserver" in part for part in command(p))}
    own = {p for p in found if parent(p) not in found}
    assert own
    return own


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def test_reference_and_judge_that_were_killed_are_replaced(server: Server) -> None:
    await server.evaluate(HONEST)
    for fork_server in fork_servers():
        for child in descendants(fork_server):
            os.kill(child, signal.SIGKILL)
    assert (await server.evaluate(HONEST))["status"] == "passed"


async def test_a_killed_fork_server_is_replaced(server: Server) -> None:
    await server.evaluate(HONEST)
    for fork_server in fork_servers():
        os.kill(fork_server, signal.SIGKILL)
    assert (await server.evaluate("# again\n" + HONEST))["status"] == "passed"


async def test_a_call_cancelled_while_it_times_spoils_no_later_one(server: Server) -> None:
    await server.evaluate(HONEST)
    timing = asyncio.Event()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        if message == "timing":
            timing.set()

    given = {"candidate": HONEST, "problem": SCALE_ADD, "target": "cpu"}
    call = asyncio.create_task(server.client.call_tool("evaluate_kernel", given, progress_callback=note))
    await timing.wait()
    call.cancel()
    assert (await server.evaluate(HONEST))["status"] == "passed"


async def test_a_description_out_of_time_spoils_no_later_call(server: Server) -> None:
    await server.evaluate(HONEST)
    refusal = await server.refusal("describe_problem", problem=SCALE_ADD, target="cpu", timeout_s=0.05)
    assert refusal.startswith("TOOK_TOO_LONG: ") and "timeout_s" in refusal
    assert (await server.evaluate(HONEST))["status"] == "passed"


@pytest.mark.long
async def test_a_torch_compile_that_does_not_run_is_left_out_with_a_note(server: Server) -> None:
    broken = "import torch._inductor.config as c\nc.cpp.cxx = ('/nope/g++',)\n" + SCALE_ADD
    result = await server.evaluate(HONEST, problem=broken, baselines=["eager", "compile"])
    assert result["status"] == "passed"
    assert [v["baseline"] for v in result["versus"]] == ["eager"]
    assert any("torch.compile does not run" in note for note in result["notes"])


@pytest.mark.long
async def test_a_torch_compile_whose_process_ends_while_it_is_timed_costs_no_more(server: Server) -> None:
    """An operator that ends its process after 20 calls, where Dynamo has been at work."""
    ending = """import os
import torch._dynamo
calls = []

@torch.library.custom_op("ends::soon", mutates_args=())
def soon(x: torch.Tensor) -> torch.Tensor:
    calls.append(torch._dynamo.utils.counters["frames"]["total"])
    if calls[-1] and len(calls) > 20:
        os._exit(7)
    return x.clone()

@soon.register_fake
def _(x):
    return torch.empty_like(x)

"""
    problem = edit(ending + SCALE_ADD, "return x * self.scale", "return torch.ops.ends.soon(x) * self.scale")
    given = {"problem": problem, "target": "cpu", "baselines": ["eager", "compile"]}
    answer = await server.call("describe_problem", **given)
    result = answer.structured_content
    assert result and not answer.is_error, answer.content
    assert [row["name"] for row in result["baselines"]] == ["eager"]
    assert result["untimed"]["compile"].endswith("the process ended with exit code 7"), result["untimed"]


@pytest.mark.parametrize("call", ["torch.randn_like(x)", "nn.functional.dropout(x)"])
async def test_a_model_whose_calls_differ_is_refused(server: Server, call: str) -> None:
    problem = edit(SCALE_ADD, "return x * self.scale + y + self.bias", f"return {call}")
    refusal = await server.refusal("evaluate_kernel", candidate=HONEST, problem=problem, target="cpu")
    assert refusal.startswith("BAD_PROBLEM: ") and "deterministic" in refusal


@pytest.mark.parametrize(
    "junk", ["{}", "hello", '{\\"value\\": [1]}', '{\\"fault\\": {}}', '{\\"value\\": {\\"seen\\": {}}}']
)
async def test_forged_answers_are_the_candidate_s_fault(server: Server, junk: str) -> None:
    forge = f'''import os, struct
        data = "{junk}".encode()
        for fd in range(3, 64):
            try:
                os.write(fd, struct.pack(">II", len(data), 0) + data)
            except OSError:
                pass
        return out'''
    result = await server.evaluate(edit(HONEST, "return out", forge))
    assert result["status"] in ("run_error", "wrong"), result
    assert (await server.evaluate(HONEST))["status"] == "passed"


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (("return out", "raise RuntimeError('\\udce9')"), "run_error"),
        (("class ModelNew", "x = " + "-" * 30000 + "1\nclass ModelNew"), "build_error"),
        (("class ModelNew", "x = '\0'\nclass ModelNew"), "build_error"),
    ],
    ids=["surrogate", "deep", "null byte"],
)
async def test_what_cannot_be_printed_or_parsed_is_a_result(
    server: Server, change: tuple[str, str], status: str
) -> None:
    assert (await server.evaluate(edit(HONEST, *change)))["status"] == status


async def test_an_expanded_input_is_judged(server: Server) -> None:
    problem = edit(SCALE_ADD, "[torch.randn(64, 256), ", "[torch.randn(64, 1).expand(64, 256), ")
    honest = edit(edit(HONEST, "kernel.run(x, y", "kernel.run(x.contiguous(), y"), "empty_like(x)", "empty_like(y)")
    assert (await server.evaluate(honest, problem=problem))["status"] == "passed"
