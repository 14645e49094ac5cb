"""What holds for every tool: schemas, refusals in one form, the size of answers, progress while waiting, prompts."""

import asyncio
import json
import os
from pathlib import Path
from typing import Annotated, Any

import pytest
from mcp import MCPError
from mcp.types import INVALID_PARAMS, CallToolResult
from pydantic import Field

from ncu_server.judge.graph_text import lines
from ncu_server.machine.store import Store
from ncu_server.server import make_server
from ncu_server.tools import TOOLS
from ncu_server.tools.arguments import READ_ONLY
from tests.support.edits import edit
from tests.support.measuring import QUICK, SCALE_ADD, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")

MOST_CHARACTERS = 10_700  # the ways to compute products are a fifth of it, digits and a note on a busy machine 200
"""Of an answer as JSON: about 2,500 tokens."""
ENDLESS = edit(QUICK, "return out", "import time; time.sleep(1000)")
DEEP = """
import torch, torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(150)])

    def forward(self, *given):
        x = sum(given)
        for layer in self.layers:
            x = torch.nn.functional.gelu(layer(x)) + x
        return x, *[x + i for i in range(60)]

def get_inputs():
    return [torch.randn(8, 8) for _ in range(50)]

def get_init_inputs():
    return []
"""


def size(answer: CallToolResult) -> int:
    assert answer.structured_content is not None, answer.content
    return len(json.dumps(answer.structured_content))


async def test_every_tool_declares_what_it_takes_returns_and_does(server: Server) -> None:
    tools = (await server.client.list_tools()).tools
    assert {"check_environment", "describe_problem", "evaluate_kernel"} <= {t.name for t in tools}
    assert len(tools) == len(TOOLS)
    for tool in tools:
        assert tool.output_schema and tool.title and tool.description
        hints = tool.annotations
        assert hints and None not in (hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint)
        assert hints.open_world_hint is False
        assert tool.input_schema["additionalProperties"] is False
        assert "timeout_s" in tool.input_schema["properties"]
        assert all("description" in p for p in tool.input_schema["properties"].values())


async def test_tools_are_shown_in_the_order_of_their_table_and_a_further_one_last() -> None:
    mcp = make_server()

    @mcp.tool(title="A further one", annotations=READ_ONLY)
    async def further(words: Annotated[str, Field(description="any")]) -> str:
        """Say it again."""
        return words

    names = [tool.name for tool in await mcp.list_tools()]
    assert names[:3] == ["check_environment", "describe_problem", "compile_kernel"]
    assert names[len(TOOLS) :] == ["further"]


async def test_what_a_model_is_shown_each_turn_is_short(server: Server) -> None:
    tools = (await server.client.list_tools()).tools
    shown = sum(len(json.dumps(t.input_schema)) + len(t.description or "") for t in tools)
    assert shown < 12_300
    assert shown + sum(len(json.dumps(t.output_schema)) for t in tools) < 69_000


@pytest.mark.parametrize(
    ("tool", "arguments", "sentence"),
    [
        ("evaluate_kernel", {"problem": "x", "target": "cpu"}, "the argument 'candidate' is missing"),
        ("evaluate_kernel", {"candidate": "x", "problem": "x", "target": 7}, "the argument 'target' cannot be used: "),
        ("describe_problem", {"problem": "x", "target": "cpu", "timeout_s": -1}, "greater than 0, not -1"),
        (
            "describe_problem",
            {"problem": "x", "target": "cpu", "timeout": 5},
            "no argument 'timeout'; did you mean 'timeout_s'?",
        ),
        (
            "describe_problem",
            {"problem": "x", "target": "cpu", "xyz": 5},
            "has no argument 'xyz'; there are: problem, ",
        ),
        ("evaluate", {}, "no tool 'evaluate'; did you mean 'evaluate_kernel'? there are: check_environment, "),
        ("tune", {}, "there is no tool 'tune'; there are: check_environment, "),
    ],
)
async def test_arguments_that_do_not_fit_are_refused_like_all_else(
    server: Server, tool: str, arguments: dict[str, Any], sentence: str
) -> None:
    refusal = await server.refusal(tool, **arguments)
    assert refusal.startswith("BAD_ARGUMENT: ") and sentence in refusal and "\n" not in refusal


async def test_a_long_argument_is_not_sent_back(server: Server) -> None:
    refusal = await server.refusal("evaluate_kernel", candidate=["x" * 10_000], problem="x", target="cpu")
    assert len(refusal) < 300


async def test_a_deep_problem_is_described_in_few_words_and_the_whole_is_a_resource(server: Server) -> None:
    answer = await server.call("describe_problem", problem=DEEP, target="cpu", baselines=["eager"])
    assert size(answer) <= MOST_CHARACTERS
    found = answer.structured_content
    assert found is not None and "more nodes" in found["graph"][-1]
    assert found["left_out"] == {"inputs": 34, "outputs": 45, "parameters": 284}
    resource = await server.client.read_resource(found["graph_uri"])
    assert len(json.loads(getattr(resource.contents[0], "text", ""))["nodes"]) > 400


async def test_a_small_graph_is_shown_whole(server: Server) -> None:
    found = (
        await server.call("describe_problem", problem=SCALE_ADD, target="cpu", baselines=["eager"])
    ).structured_content
    assert found is not None and found["left_out"] == {}
    assert found["graph"][0] == "mul = mul.Tensor(x, 1.5) -> f32[64, 256]" and len(found["graph"]) == 3


async def test_what_is_left_of_a_graph_is_counted_by_operator() -> None:
    node = {"name": "n", "op": "aten.relu.default", "args": [{"node": "x"}], "kwargs": {}, "outputs": []}
    assert lines({"nodes": [node] * 3}) == ["n = relu(x) -> no tensor"] * 3
    assert lines({"nodes": [node] * 100})[-1] == "... 60 more nodes: 60 relu"


async def test_verdicts_and_the_environment_are_short(server: Server) -> None:
    assert size(await server.call("check_environment")) <= MOST_CHARACTERS
    given = {"problem": SCALE_ADD, "target": "cpu"}
    passed = await server.call("evaluate_kernel", candidate=QUICK, **given)
    assert size(passed) <= MOST_CHARACTERS
    errors = "\n".join(f"undeclared_{i} = 1;" for i in range(150))
    broken = await server.call(
        "evaluate_kernel", candidate=edit(QUICK, "int64_t m", errors + "int64_t m"), timeout_s=600, **given
    )
    assert broken.structured_content and broken.structured_content["status"] == "build_error"
    assert size(broken) <= MOST_CHARACTERS


async def test_whoever_waits_for_the_device_hears_how_many_are_ahead_again_and_again(server: Server) -> None:
    checking, heard = asyncio.Event(), asyncio.Event()
    said: list[tuple[float, str]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        if message == "checking":
            checking.set()

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        said.append((progress, message or ""))
        if [m for _, m in said].count("queued behind 1") == 2:
            heard.set()

    given = {"problem": SCALE_ADD, "target": "cpu"}
    ahead = asyncio.create_task(
        server.client.call_tool("evaluate_kernel", {"candidate": ENDLESS, **given}, progress_callback=note)
    )
    await checking.wait()
    behind = asyncio.create_task(
        server.client.call_tool("evaluate_kernel", {"candidate": "# behind\n" + QUICK, **given}, progress_callback=hear)
    )
    async with asyncio.timeout(60):
        await heard.wait()
        ahead.cancel()
        assert ((await behind).structured_content or {})["status"] == "passed"
    assert [n for n, _ in said] == sorted({n for n, _ in said}), "progress must rise"


async def test_the_prompts_hold_what_they_are_given(server: Server) -> None:
    assert {p.name for p in (await server.client.list_prompts()).prompts} == {"diagnose_kernel", "optimize_loop"}
    for name, given in (
        ("diagnose_kernel", {"problem": "PROBLEM {x}", "candidate": "CANDIDATE", "target": "cpu"}),
        ("optimize_loop", {"problem": "PROBLEM {x}"}),
    ):
        text = getattr((await server.client.get_prompt(name, given)).messages[0].content, "text", "")
        assert all(word in text for word in given.values())
        assert "evaluate_kernel" in text and len(text) < MOST_CHARACTERS


@pytest.mark.parametrize(
    ("name", "given", "sentence"),
    [
        ("diagnose", {}, "there is no prompt 'diagnose'; did you mean 'diagnose_kernel'?"),
        ("optimize_loop", {"prob": "x"}, "optimize_loop has no argument 'prob'; did you mean 'problem'?"),
        ("optimize_loop", {}, "the argument 'problem' of optimize_loop is missing"),
    ],
)
async def test_a_prompts_arguments_are_named_too(
    server: Server, name: str, given: dict[str, str], sentence: str
) -> None:
    with pytest.raises(MCPError, match=sentence.replace("?", "[?]")) as caught:
        await server.client.get_prompt(name, given)
    assert caught.value.error.code == INVALID_PARAMS


async def test_the_instructions_name_the_workflow(server: Server) -> None:
    assert "check_environment" in (server.client.instructions or "")


async def test_a_store_keeps_what_was_used_last(tmp_path: Path) -> None:
    store = Store(tmp_path / "kept", cap_bytes=250)
    for name in ("a", "b"):
        folder = store.keep(name, {"file": b"x" * 100})
        assert (folder / "file").read_bytes() == b"x" * 100
    os.utime(tmp_path / "kept" / "b", (1, 1))
    store.keep("c", {"file": b"x" * 100})
    assert [store.find(name) is not None for name in ("a", "b", "c")] == [True, False, True]
    assert store.keep("large", {"file": b"x" * 1000}).is_dir()
    assert [store.find(name) is not None for name in ("a", "c", "large")] == [False, False, True]
    assert store.find("..") is None and store.find("no/such") is None


async def test_what_is_kept_already_stays_as_it_is(tmp_path: Path) -> None:
    store = Store(tmp_path / "kept")
    store.keep("a", {"file": b"first"})
    assert (store.keep("a", {"file": b"second"}) / "file").read_bytes() == b"first"
    assert [f.name for f in (tmp_path / "kept").iterdir()] == ["a"]
