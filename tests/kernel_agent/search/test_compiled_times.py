"""PyTorch's compiled times come beside the search: what prompts say of them, at first, later and once more."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

import pytest

from kernel_agent.cli.report import line
from kernel_agent.errors import KernelAgentError, Waiting
from kernel_agent.llm import cassette
from kernel_agent.run.events import BaselineTimed, Event, RoundStarted, RunStarted, TrialJudged
from kernel_agent.run.journal import Journal, read
from kernel_agent.run.measured import Launch
from kernel_agent.run.tree import Run, ShownBaselines
from kernel_agent.run.types import Baseline, Timing
from tests.support.endpoint_run import Mind, alone, run
from tests.support.scripted_openai import Say, ScriptedOpenAI, Stall, Step
from tests.support.scripted_run import BENCH, DESCRIPTION, MODEL, PROBLEM, ROOT, small_settings

__all__ = ["alone"]
MISSING = "not timed yet: torch.compile; until then gains count against eager PyTorch"
TO_BEAT, SO_FAR = "to beat: torch.compile, 80.0 us", "to beat so far: eager PyTorch, 100.0 us"


def bench(tmp_path: Path, after: int | None) -> str:
    server = shlex.join(["python", str(BENCH), "--log", str(tmp_path / "log")])
    return server if after is None else f"{server} --compile-after {after}"


def asked(server: ScriptedOpenAI) -> list[str]:
    return [body["messages"][1]["content"] for body in server.requests]


async def test_the_first_prompt_does_not_wait_for_torch_compile_and_says_so(tmp_path: Path) -> None:
    events: list[Event] = []
    async with ScriptedOpenAI(Mind()) as server:
        results = await run(tmp_path, server, events, mcp_server_path=bench(tmp_path, 2), num_rounds=2)
    first, *_, last = asked(server)
    assert MISSING in first and SO_FAR in first and "torch.compile: 80.0 us" not in first
    assert MISSING not in last and TO_BEAT in last and "torch.compile: 80.0 us" in last
    kinds = [type(event) for event in events]
    assert kinds.index(RunStarted) < kinds.index(TrialJudged) < kinds.index(BaselineTimed)
    assert results["compile_mode"] == "compile" and results["speedup_vs_compile"] > 1
    assert read(tmp_path / "run").description.unmeasured == ()


async def test_times_that_come_last_are_waited_for_and_judged_against(tmp_path: Path) -> None:
    async with ScriptedOpenAI(Mind()) as server:
        results = await run(tmp_path, server, mcp_server_path=bench(tmp_path, 2), num_rounds=1)
    assert all(MISSING in prompt for prompt in asked(server))
    assert results["compile_mode"] == "compile"
    confirmed = [json.loads(row) for row in (tmp_path / "log").read_text().splitlines()][-1]
    assert confirmed["fresh"] and confirmed["baselines"] == ["eager", "compile"]


@pytest.mark.parametrize(("after", "given"), [(None, {}), (0, {"compile_times": "first"})])
async def test_on_few_cores_or_where_asked_for_all_is_timed_before_the_first_prompt(
    tmp_path: Path, after: int | None, given: dict[str, Any]
) -> None:
    events: list[Event] = []
    async with ScriptedOpenAI(Mind()) as server:
        await run(tmp_path, server, events, mcp_server_path=bench(tmp_path, after), num_rounds=1, **given)
    assert all(MISSING not in prompt and TO_BEAT in prompt for prompt in asked(server))
    kinds = [type(event) for event in events]
    assert kinds.index(BaselineTimed) < kinds.index(RoundStarted)
    assert read(tmp_path / "run").shown_baselines == {}


async def test_a_mode_that_does_not_run_is_noted_and_no_longer_missing(tmp_path: Path) -> None:
    events: list[Event] = []
    async with ScriptedOpenAI(Mind()) as server:
        given = {"mcp_server_path": bench(tmp_path, 2), "num_rounds": 2}
        results = await run(tmp_path, server, events, code=f"{MODEL}# no compile\n", **given)
    assert "torch.compile does not run on this problem: scripted" in [line(event) for event in events]
    first, *_, last = asked(server)
    assert MISSING in first and "does not run on this problem" not in first
    assert MISSING not in last and "torch.compile does not run on this problem" in last
    assert results["compile_mode"] is None and results["status"] == "improved"


async def test_a_run_killed_before_the_times_came_asks_the_same_when_resumed(tmp_path: Path) -> None:
    """The idea that repeats another has more asked for; there the run is killed. Resumed, the times come first, and yet
    the first question is the one that was answered."""
    held, started = asyncio.Event(), 0

    def stuck(body: dict[str, Any]) -> Step:
        nonlocal started
        started += 1
        if started == 1:
            titles = ("keep rows in registers", "registers keep rows")
            return Say(json.dumps([{"title": title, "transformation": "keep them"} for title in titles]))
        held.set()
        return Stall()

    async with ScriptedOpenAI(stuck) as server:
        given = {"mcp_server_path": bench(tmp_path, 1000), "base_url": server.url, "provider": "custom"}
        given |= {"model_name": "tiny", "branching_factor": 2, "implementations_per_idea": 1, "num_rounds": 1}
        given |= {"retrieval": "lexical", "seeds": False, "experience": False}
        script = f"""
import asyncio; from kernel_agent import KernelAgent
asyncio.run(KernelAgent(**{given!r}).generate_kernel({MODEL!r}, run_directory="run"))
"""
        around = os.environ | {"PYTHONPATH": str(ROOT)}
        with subprocess.Popen([sys.executable, "-c", script], stdout=DEVNULL, env=around) as process:
            await asyncio.wait_for(held.wait(), 60)
            process.kill()
    before = asked(server)
    assert len(before) == 2 and all(MISSING in prompt and "Propose" in prompt for prompt in before)
    async with ScriptedOpenAI(Mind()) as server:
        more = {"mcp_server_path": bench(tmp_path, 0), "compile_times": "first", "num_rounds": 1}
        results = await run(tmp_path, server, **more)
    again, *code = asked(server)
    assert again == before[1], "the answered question was put anew, or the second one in other words"
    assert code and all(MISSING not in prompt and TO_BEAT in prompt for prompt in code)
    assert results["compile_mode"] == "compile"


async def test_a_cassette_of_before_is_played_with_all_times_known_at_once(tmp_path: Path) -> None:
    async with ScriptedOpenAI(Mind()) as server:
        await run(tmp_path, server, num_rounds=1, record=tmp_path / "tape.jsonl")
    head, *replies = (tmp_path / "tape.jsonl").read_text().splitlines()
    old = json.loads(head)
    del old["settings"]["compile_times"]
    (tmp_path / "tape.jsonl").write_text("\n".join([json.dumps(old), *replies]) + "\n")
    assert cassette.read(tmp_path / "tape.jsonl").settings["compile_times"] == "first"
    (tmp_path / "run").rename(tmp_path / "before")
    events: list[Event] = []
    more = {"provider": "replay", "cassette": tmp_path / "tape.jsonl", "mcp_server_path": bench(tmp_path, 0)}
    async with ScriptedOpenAI(()) as server:
        await run(tmp_path, server, events, num_rounds=1, **more)
        assert server.requests == []
    kinds = [type(event) for event in events]
    assert kinds.index(BaselineTimed) < kinds.index(RoundStarted)
    before, after = read(tmp_path / "before"), read(tmp_path / "run")
    assert after.trials == before.trials


async def test_a_search_that_waits_for_a_person_lets_the_times_come(tmp_path: Path) -> None:
    async with ScriptedOpenAI(()) as server:
        given = {"mcp_server_path": bench(tmp_path, 0), "provider": "manual", "wait": False, "num_rounds": 1}
        with pytest.raises(Waiting) as waiting:
            await run(tmp_path, server, **given)
    (prompt,) = waiting.value.prompts
    assert MISSING in Path(prompt).read_text() and [*read(tmp_path / "run").baselines] == ["compile"]


async def test_a_search_that_fails_does_not_wait_for_the_times(tmp_path: Path) -> None:
    async with ScriptedOpenAI(lambda _: Say("# no module")) as server:
        given = {"mcp_server_path": bench(tmp_path, 1000), "provider": "replay", "num_rounds": 1}
        with pytest.raises(KernelAgentError, match="not among the recorded"):
            await run(tmp_path, server, **given)
    assert not (tmp_path / "run").exists(), "nothing worth a resume was recorded"


def test_what_was_asked_is_told_as_it_was_and_all_else_as_it_is(tmp_path: Path) -> None:
    bare = DESCRIPTION.__class__(
        **{name: getattr(DESCRIPTION, name) for name in DESCRIPTION.__dataclass_fields__}
        | {"baselines": {"eager": DESCRIPTION.baselines["eager"]}, "unmeasured": ("compile", "max-autotune")}
    )
    launches = (Launch("relu_0", 70.0, 1), Launch("2 others", 1.0, 2))
    fast = Baseline("compile", Timing(80.0, 79.0, 81.0, 20), ("relu_0",), ("a note",), launches)
    with Journal.create(tmp_path / "run") as journal:
        journal.begin(PROBLEM, small_settings())
        journal.describe(bare)
        run = Run(PROBLEM, small_settings(), bare)
        for record in (
            ShownBaselines("a", ()),
            fast,
            ShownBaselines("b", ("compile",)),
            Baseline("max-autotune", None),
        ):
            journal.append(record)
            run.record(record)
    for one in (run, read(tmp_path / "run")):
        assert one.described("a") == bare
        assert [*one.described("b").baselines] == ["eager", "compile"]
        assert one.described("b").unmeasured == ("max-autotune",) and one.described("b").compiled == ("relu_0",)
        assert one.described("b").launches == {"compile": launches} and one.described("a").launches == {}
        assert one.described("c") == one.description and one.description.unmeasured == ()
        assert [*one.description.baselines] == ["eager", "compile"] and one.description.notes == ("a note",)
        with pytest.raises(ValueError, match="recorded already"):
            one.record(fast)
