"""The surface: schemas, refusals, progress, cancellation, death."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest
from mcp import Client

from tests.support.edits import edit
from tests.support.measuring import QUICK as HONEST
from tests.support.measuring import SCALE_ADD, Server, command, descendants, server_parameters

pytestmark = pytest.mark.asyncio(loop_scope="session")

ENDLESS = edit(HONEST, "return out", "import time; time.sleep(1000)")


async def test_the_environment_says_what_is_here_and_how_to_get_the_rest(server: Server) -> None:
    answer = (await server.call("check_environment")).structured_content
    assert answer is not None
    targets = {t["name"]: t for t in answer["targets"]}
    assert targets["cpu"]["available"]
    assert all(t["available"] or (t["reason"] and t["fix"]) for t in targets.values())
    assert all(t["path"] or t["fix"] for t in answer["tools"])


async def test_a_description_counts_the_work_and_times_pytorch(server: Server) -> None:
    answer = await server.call("describe_problem", problem=SCALE_ADD, target="cpu", baselines=["eager"])
    found = answer.structured_content
    assert found is not None, answer.content
    assert found["bytes"] == 4 * (3 * 64 * 256 + 256)
    assert found["flops"] == 3 * 64 * 256
    assert found["operators"] == ["aten.mul.Tensor", "aten.add.Tensor"]
    assert found["parameters"] == [{"name": "bias", "shape": [256], "dtype": "float32", "kind": "parameter"}]
    assert [b["name"] for b in found["baselines"]] == ["eager"]
    assert found["device"]["copy_gbps"] > 0.1
    drawn, hard = found["precision"]
    assert [(row["output"], row["inputs"]) for row in (drawn, hard)] == [("output 0", "as drawn"), ("output 0", "hard")]
    assert 0 <= drawn["reference"] <= 1 < drawn["allowed"] == 64
    assert 2**-24 <= drawn["unit"] / drawn["rms"] <= 2**-20 and hard["rms"] < drawn["rms"]
    assert found["ways"] == [], "there is no product, and no tensor core"
    resource = await server.client.read_resource(found["graph_uri"])
    graph = json.loads(getattr(resource.contents[0], "text", ""))
    assert [n["op"] for n in graph["nodes"]] == ["aten.mul.Tensor", "aten.add.Tensor", "aten.add.Tensor"]
    assert [i["name"] for i in graph["inputs"]] == ["x", "y"]
    assert graph["outputs"] == [graph["nodes"][-1]["name"]]


async def test_a_module_that_cannot_be_traced_is_described_with_the_reason(server: Server) -> None:
    problem = edit(SCALE_ADD, "return x * self", "if x.sum() > 0:\n            y = y + 1\n        return x * self")
    answer = await server.call("describe_problem", problem=problem, target="cpu", baselines=["eager"])
    assert answer.structured_content is not None
    assert answer.structured_content["graph_uri"] is None
    assert "cannot trace" in answer.structured_content["graph_error"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("class Model", "class Model("), "SyntaxError"),
        (("class Model(nn.Module)", "class Other"), "defines no `Model`, and no other subclass of torch.nn.Module"),
        (("return [torch.randn(64, 256)", "raise OSError('no data') #"), "get_inputs: OSError: no data"),
        (("return x * self.scale + y + self.bias", "return 'text'"), "returns no tensor"),
        (("return x * self.scale", "return x @ self.scale"), "Model.forward"),
        (("self.scale = scale", "self.scale = 1 / 0"), "ZeroDivisionError"),
        (("return [1.5]", "return [object()]"), "object"),
    ],
    ids=lambda v: v if isinstance(v, str) else None,
)
async def test_a_problem_at_fault_is_refused_in_one_sentence(
    server: Server, change: tuple[str, str], words: str
) -> None:
    refusal = await server.refusal("evaluate_kernel", candidate=HONEST, problem=edit(SCALE_ADD, *change), target="cpu")
    assert refusal.startswith("BAD_PROBLEM: ")
    assert words in refusal


async def test_a_source_may_begin_with_a_mark_and_has_to_be_text_of_some_length(server: Server) -> None:
    mark = "\ufeff"
    assert (await server.evaluate(mark + HONEST, problem=mark + SCALE_ADD))["status"] == "passed"
    long = await server.refusal("evaluate_kernel", candidate="#" * 2_200_000, problem=SCALE_ADD, target="cpu")
    assert long.startswith("BAD_ARGUMENT: the argument 'candidate'") and "2097152 characters" in long


async def test_unknown_names_are_refused_with_the_known_ones(server: Server) -> None:
    refusal = await server.refusal("describe_problem", problem=SCALE_ADD, target="tpu")
    assert refusal.startswith("UNKNOWN_TARGET: ") and "cpu, cuda" in refusal
    given = {"candidate": HONEST, "problem": SCALE_ADD, "target": "cpu", "baselines": ["jax"]}
    assert (await server.refusal("evaluate_kernel", **given)).startswith("BAD_ARGUMENT: ")


async def test_progress_names_the_stages_in_order(server: Server) -> None:
    said: list[str] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        said.append(message or "")

    given = {"candidate": "# new\n" + HONEST, "problem": SCALE_ADD, "target": "cpu"}
    await server.client.call_tool("evaluate_kernel", given, progress_callback=note)
    assert [s for s in dict.fromkeys(said) if s in ("building", "checking", "timing")] == [
        "building",
        "checking",
        "timing",
    ]


async def until(condition: object, seconds: float = 5.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # type: ignore[operator]
            await asyncio.sleep(0.02)


async def test_a_cancelled_call_leaves_no_child_and_frees_the_device(server: Server) -> None:
    await server.evaluate(HONEST)
    before = descendants(os.getpid())
    checking = asyncio.Event()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        if message == "checking":
            checking.set()

    given = {"candidate": ENDLESS, "problem": SCALE_ADD, "target": "cpu"}
    call = asyncio.create_task(server.client.call_tool("evaluate_kernel", given, progress_callback=note))
    await checking.wait()
    await until(lambda: descendants(os.getpid()) - before)
    call.cancel()
    await until(lambda: not descendants(os.getpid()) - before)
    assert (await server.evaluate(HONEST))["status"] == "passed"


@pytest.mark.long
async def test_calls_side_by_side_wait_for_the_device_and_all_pass(server: Server) -> None:
    results = await asyncio.gather(*(server.evaluate(f"# {i}\n" + HONEST) for i in range(4)))
    assert [r["status"] for r in results] == ["passed"] * 4


async def test_a_killed_server_takes_its_children_along(tmp_path: Path) -> None:
    before = descendants(os.getpid())
    checking = asyncio.Event()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        if message == "checking":
            checking.set()

    async def run() -> None:
        async with Client(server_parameters(tmp_path)) as client:
            given = {"candidate": ENDLESS, "problem": SCALE_ADD, "target": "cpu"}
            await client.call_tool("evaluate_kernel", given, progress_callback=note)

    task = asyncio.create_task(run())
    await checking.wait()
    (main,) = [p for p in descendants(os.getpid()) - before if b"ncu_server" in command(p)[2:3]]
    os.kill(main, signal.SIGKILL)
    await until(lambda: not descendants(os.getpid()) - before)
    with pytest.raises(BaseException):  # noqa: B017  the SDK wraps the closed connection in groups of its own
        await task
