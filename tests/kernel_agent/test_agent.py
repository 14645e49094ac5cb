"""The front door, with everything real behind it but the measurements: server, library, journal, templates."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

import pytest

from kernel_agent import KernelAgent
from kernel_agent.cli.report import measured
from kernel_agent.errors import BudgetSpent, KernelAgentError, ServerError, Unavailable, UsageError
from kernel_agent.proposers.seeded import Seeded
from kernel_agent.run.brief import Brief
from kernel_agent.run.devices import as_json
from kernel_agent.run.events import Confirmed, DevicesSeen, Event, Notice, RunOpened, RunStarted, TrialJudged
from kernel_agent.run.journal import FILE, Journal, begun, read
from kernel_agent.run.tree import Run
from kernel_agent.run.types import Idea
from kernel_agent.search.briefing import brief
from kernel_agent.settings import load_settings, provider_of, rows
from tests.support.edits import edit
from tests.support.scripted_openai import Say, ScriptedOpenAI
from tests.support.scripted_run import DESCRIPTION, PROBLEM, ROOT, ScriptedProposer, small_settings
from tests.support.scripted_run import MODEL as CODE


async def test_a_run_says_of_each_device_how_busy_it_was_over_all_sessions(tmp_path: Path) -> None:
    events: list[Event] = []
    two = agent(tmp_path, events, "--gpus 2 --delay 0.02", num_rounds=1)
    _, first = await two.generate_kernel(CODE, name="relu", run_directory=tmp_path / "run")
    assert len(first["devices"]) == 2
    for device in first["devices"]:
        assert (device["card"], device["host"]) == ("scripted", "scripted-host")
        assert 0 < device["busy_share"] < 1 and device["waited_for"]["proposer"] > 0
        assert device["busy_share"] + sum(device["waited_for"].values()) == pytest.approx(1, abs=0.01)
    assert {device["uuid"] for device in first["devices"]} == {"GPU-0", "GPU-1"}
    _, then = await agent(tmp_path, events, "--gpus 2", num_rounds=2).resume(tmp_path / "run")
    for device, before in zip(then["devices"], first["devices"], strict=True):
        assert device["uuid"] == before["uuid"] and device["seconds"] > before["seconds"]
    told = [event.devices for event in events if isinstance(event, DevicesSeen)]
    assert len(told) > 2 and [as_json(device) for device in told[-1]] == then["devices"]
    shown = list(measured(read(tmp_path / "run"), None))
    assert [line for line in shown if line.startswith("scripted (GPU-1, scripted-host) was busy ")]


@pytest.fixture(autouse=True)
def keyless(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    for row in rows():
        monkeypatch.delenv(row.variable, raising=False)


def agent(tmp_path: Path, seen: list[Event] | None = None, server: str = "", **settings: object) -> KernelAgent:
    script = f"python {ROOT / 'tests' / 'support' / 'scripted_bench.py'} --log {tmp_path / 'log'} {server}"
    given = {"mcp_server_path": script, "branching_factor": 3, "num_rounds": 2, "retrieval": "lexical"} | settings
    return KernelAgent(**given, observe=(seen if seen is not None else []).append)  # type: ignore[arg-type]


async def test_code_goes_in_and_a_confirmed_kernel_with_its_results_comes_out(tmp_path: Path) -> None:
    events: list[Event] = []
    kernel, results = await agent(tmp_path, events).generate_kernel(CODE, name="relu")
    directory = Path(results["run_directory"])
    assert directory.parent == Path("runs") and directory.name.startswith("relu-")
    assert results["status"] == "improved" and results["speedup"] > 1.06 and results["target"] == "cpu"
    low, high = results["speedup_interval"]
    assert low < results["speedup"] < high and results["speedup_vs_compile_interval"][0] > 0
    assert results["optimization_idea"] and results["lineage"][-1] == results["optimization_idea"]
    assert results["time_us"] == pytest.approx(100 / results["speedup"]) and results["reference_us"] == 100
    assert results["gbps"] == pytest.approx(32768 / results["time_us"] / 1e3)
    assert results["error"] == 0.5 and results["retrieval"] == "lexical" and results["rounds"] == 2
    assert [row["rank"] for row in results["ranking"]] == list(range(1, len(results["ranking"]) + 1))
    assert (directory / "best_kernel.py").read_text() == kernel and "class ModelNew" in kernel
    assert json.loads((directory / "results.json").read_text()) | {"kernel": results["kernel"]} == results
    assert events[0] == RunOpened(directory) and isinstance(events[1], Notice), "a watcher can tell how to go on"
    started = next(event for event in events if isinstance(event, RunStarted))
    assert (started.proposer, started.kept, started.rounds) == ("templates", 0, 2)
    assert any(isinstance(event, Confirmed) and event.accepted for event in events)


@pytest.mark.long
async def test_a_finished_run_resumed_gives_the_same_and_more_rounds_can_be_asked_for(tmp_path: Path) -> None:
    kernel, results = await agent(tmp_path).generate_kernel(CODE, run_directory=tmp_path / "run")
    asked = (tmp_path / "log").read_text()
    events: list[Event] = []
    again, same = await agent(tmp_path, events).resume(tmp_path / "run")
    assert again == kernel and _lasting(same) == _lasting(results)
    assert (tmp_path / "log").read_text() == asked
    assert all(event.kept for event in events if isinstance(event, TrialJudged))
    _, further = await agent(tmp_path, num_rounds=3).resume(tmp_path / "run")
    assert further["rounds"] == 3 and further["trials"] > results["trials"]


def _lasting(results: dict[str, Any]) -> dict[str, Any]:
    """What a session that does nothing leaves as it was: all but how long the devices were there."""
    return {name: value for name, value in results.items() if name != "devices"}


@pytest.mark.long
async def test_settings_at_a_resume_are_kept_and_the_target_cannot_be_one(tmp_path: Path) -> None:
    await agent(tmp_path, num_rounds=1).generate_kernel(CODE, run_directory=tmp_path / "run")
    with pytest.raises(UsageError, match=r"is for cpu and stays so: start a new run for cuda\.$"):
        await agent(tmp_path, target="cuda").resume(tmp_path / "run")
    _, further = await agent(tmp_path, num_rounds=2, target="cpu").resume(str(tmp_path / "run"))
    _, plain = await KernelAgent().resume(tmp_path / "run")
    assert _lasting(plain) == _lasting(further) and plain["rounds"] == 2
    with pytest.raises(KernelAgentError, match="no command nonsense"):
        await KernelAgent(mcp_server_path="nonsense").resume(tmp_path / "run")
    await KernelAgent().resume(tmp_path / "run")  # what could not be used is not kept


@pytest.mark.long
async def test_the_ranking_is_by_first_judgements_and_the_second_stands_beside(tmp_path: Path) -> None:
    _, results = await agent(tmp_path, branching_factor=8).generate_kernel(CODE, run_directory=str(tmp_path / "run"))
    run, rows = read(tmp_path / "run"), results["ranking"]
    assert [row["speedup"] for row in rows] == sorted((row["speedup"] for row in rows), reverse=True)
    confirmed = [row for row in rows if row["confirmed"]]
    assert len(confirmed) == 1 and {row["confirmed"] for row in rows} == {True, None}
    for row in rows:
        trial = run.trials[row["trial"]]
        second = run.confirmations.get(trial.source_id)
        assert row["speedup"] == run.speedup(trial)
        assert row["confirmed_speedup"] == (second.speedup if second else None)
        assert (row["confirmed_speedup_interval"] is None) == (second is None)
    assert results["speedup"] == confirmed[0]["confirmed_speedup"]
    assert results["optimization_idea"] == confirmed[0]["idea"] == confirmed[0]["lineage"][-1]
    named = [(row["idea"], run.trials[row["trial"]].source) for row in rows if row["idea"] != "the original"]
    assert named and all(f"# kernel: {title.partition(' [')[0]}\n" in source for title, source in named)
    assert len({title for title, _ in named}) == len(named)


@pytest.mark.parametrize("file", [pytest.param("best_kernel.py", marks=pytest.mark.long), "results.json"])
async def test_results_that_cannot_be_written_are_a_sentence_and_come_with_room(tmp_path: Path, file: str) -> None:
    run = tmp_path / "run"
    (run / f"{file}.half").mkdir(parents=True)
    with pytest.raises(Unavailable, match=rf"{file} cannot be written .*journal safe: .* resume {run}\.$"):
        await agent(tmp_path, num_rounds=1).generate_kernel(CODE, run_directory=run)
    (run / f"{file}.half").rmdir()
    kernel, _ = await agent(tmp_path).resume(run)
    assert (run / "best_kernel.py").read_text() == kernel


async def test_a_kernel_is_confirmed_where_the_problem_cannot_be_compiled(tmp_path: Path) -> None:
    _, results = await agent(tmp_path).generate_kernel(CODE + "# no compile\n")
    assert results["status"] == "improved" and results["speedup_vs_compile"] is None


@pytest.mark.long
async def test_a_cancelled_run_keeps_its_journal_and_resumes(tmp_path: Path) -> None:
    judged = asyncio.Event()

    def watch(event: Event) -> None:
        if isinstance(event, TrialJudged):
            judged.set()

    stopped = agent(tmp_path, server="--delay 0.05")
    stopped._observe = watch
    task = asyncio.create_task(stopped.generate_kernel(CODE, run_directory=tmp_path / "run"))
    task.add_done_callback(lambda _: judged.set())
    await judged.wait()
    async with asyncio.timeout(5):
        task.cancel()
        await asyncio.wait({task})
    assert task.cancelled() and (kept := read(tmp_path / "run").evaluations)
    _, results = await agent(tmp_path).resume(tmp_path / "run")
    assert read(tmp_path / "run").evaluations.items() >= kept.items() and results["status"] == "improved"


@pytest.mark.long
async def test_a_server_that_dies_twice_stops_the_run_and_the_next_one_finishes_it(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="resume the run"):
        await agent(tmp_path, server="--die-at 1").generate_kernel(CODE, run_directory=tmp_path / "run")
    _, results = await agent(tmp_path).resume(tmp_path / "run")
    assert results["status"] == "improved"


async def test_a_single_module_with_shapes_is_enough(tmp_path: Path) -> None:
    code = edit(CODE.partition("def get_inputs")[0], "Model", "ModelNew")
    kernel, _ = await agent(tmp_path).generate_kernel(code, input_shapes=[(64, 64)])
    assert "Model = ModelNew\n" in kernel and "class ModelNew(Model):" in kernel


@pytest.mark.parametrize(
    ("code", "settings", "words"),
    [
        ("def f(:", {}, "does not parse"),
        (CODE, {"provider": "openai"}, "key"),
        (CODE, {"provider": "custom"}, "model"),
        (CODE, {"mcp_server_path": "nonsense"}, "there is no command nonsense"),
        (CODE, {"mcp_server_path": " "}, "is no command"),
        (CODE, {"server": "--behave 'not start'"}, "refuses to start"),
        (CODE, {"server": "--behave 'die describing'"}, "died again"),
        (CODE, {"server": "--behave malformed"}, "cannot be understood"),
        (CODE, {"provider": "replay", "seeds": False}, "not among the recorded"),
        *(
            (f"{CODE}# refuse: {code}", {"target": "cpu"}, "ordered")
            for code in ("UNKNOWN_TARGET", "BAD_PROBLEM", "NO_DEVICE", "NO_COMPILER", "INTERNAL")
        ),
    ],
)
async def test_what_cannot_be_done_is_one_sentence_and_leaves_no_directory(
    tmp_path: Path, code: str, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(KernelAgentError, match=words) as caught:
        await agent(tmp_path, **settings).generate_kernel(code)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "runs").exists()


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
async def test_a_start_that_is_killed_or_stopped_is_resumed(tmp_path: Path, number: signal.Signals) -> None:
    server = agent(tmp_path, server="--behave ponder").settings.mcp_server_path
    script = f"""
import asyncio; from kernel_agent import KernelAgent
from kernel_agent.cli.report import measured
def observe(event): print(type(event).__name__, flush=True)
agent = KernelAgent(mcp_server_path={server!r}, observe=observe)
asyncio.run(agent.generate_kernel({CODE!r}, run_directory="runs/one"))
"""
    command = [sys.executable, "-c", script]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=PIPE, stderr=DEVNULL, text=True, env=environment) as process:
        assert process.stdout and process.stdout.readline() == "RunOpened\n"
        process.send_signal(number)
    assert begun(tmp_path / "runs" / "one")
    _, results = await agent(tmp_path).resume("runs/one")
    assert results["status"] == "improved"


@pytest.mark.parametrize(
    "work", [KernelAgent.resume, lambda agent, path: agent.generate_kernel(CODE, run_directory=path)]
)
async def test_a_directory_that_is_no_path_is_one_sentence(tmp_path: Path, work: Any) -> None:
    with pytest.raises(UsageError, match="directory is a path, not 5"):
        await work(agent(tmp_path), 5)


async def test_a_directory_with_a_run_in_it_is_left_alone(tmp_path: Path) -> None:
    await agent(tmp_path, num_rounds=1).generate_kernel(CODE, run_directory=tmp_path / "run")
    before = (tmp_path / "run" / FILE).read_bytes()
    with pytest.raises(UsageError, match="holds a run already"):
        await agent(tmp_path).generate_kernel(CODE, run_directory=tmp_path / "run")
    assert (tmp_path / "run" / FILE).read_bytes() == before


def test_the_provider_is_the_first_with_a_key_and_templates_without(monkeypatch: pytest.MonkeyPatch) -> None:
    assert provider_of(load_settings()) == "templates"
    assert provider_of(load_settings(base_url="http://localhost/v1")) == "custom"
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    assert provider_of(load_settings()) == "anthropic"
    assert provider_of(load_settings(openai_api_key="k")) == "openai"
    assert provider_of(load_settings(provider="templates")) == "templates"


async def test_what_a_run_took_stands_in_its_results_by_stage(tmp_path: Path) -> None:
    _, results = await agent(tmp_path).generate_kernel(CODE, run_directory=tmp_path / "run")
    assert results["spent"]["calls"] == 0 and results["spent"]["models"] == {} and results["spent"]["seconds"] > 0
    assert set(results["spent"]["judging"]) == {"build_s", "check_s", "time_s"}


async def test_templates_seed_a_round_of_their_own_and_their_code_is_theirs(tmp_path: Path) -> None:
    class Seed(ScriptedProposer):
        async def ideas(self, brief: Brief, count: int) -> list[Idea]:
            return [Idea("", 0, "", "seed", "", {"gene": 1})] * 3

        async def write(self, brief: Brief, idea: Idea, attempt: int) -> str:
            return "from the seed"

    proposer = Seeded(Seed(), ScriptedProposer())
    run = Run(PROBLEM, small_settings(), DESCRIPTION)
    first = await proposer.ideas(brief(run, run.reference, 0), 3)
    later = await proposer.ideas(brief(run, run.reference, 1), 3)
    assert [idea.change is None for idea in first] == [False, False, False]
    assert [idea.change is None for idea in later] == [True, True, True]
    assert await proposer.write(brief(run, run.reference, 1), first[0], 0) == "from the seed"
    assert (await proposer.write(brief(run, run.reference, 1), later[1], 0)).startswith("#")


async def test_the_seeds_are_the_model_s_first_parents_and_are_labelled(tmp_path: Path) -> None:
    asked: list[str] = []

    def reply(body: dict[str, Any]) -> Say:
        asked.append(body["messages"][-1]["content"])
        ideas = json.dumps([{"title": "Hold the row in registers", "transformation": "hold it"}])
        return Say(ideas if "Propose" in asked[-1] else "```python\n# speed: 9\nclass ModelNew(Model):\n    pass\n```")

    given = {"provider": "custom", "model_name": "tiny", "num_rounds": 1, "implementations_per_idea": 1}
    async with ScriptedOpenAI(reply) as server:
        _, results = await agent(tmp_path, base_url=server.url, **given).generate_kernel(CODE, run_directory="run")
        seeded, calls = read(Path("run")), len(asked)
        _, plain = await agent(tmp_path, base_url=server.url, seeds=False, **given).generate_kernel(CODE)
    seeds = [idea for idea in seeded.ideas.values() if idea.round == 0]
    assert len(seeds) == 4 and all(idea.change is not None for idea in seeds)
    assert "as a template writes it" in asked[0] and "There is no kernel yet" in asked[calls]
    assert [row["idea"].startswith("seed: ") for row in results["ranking"][:2]] == [False, True]
    assert results["lineage"][0].startswith("seed: ") and len(results["lineage"]) == 2
    assert plain["lineage"] == ["Hold the row in registers"]


async def test_two_runs_of_one_agent_at_once_have_a_clock_and_limits_each(tmp_path: Path) -> None:
    one = agent(tmp_path, num_rounds=1, budget_minutes=1e-6)
    strict = asyncio.create_task(one.generate_kernel(CODE, run_directory="strict"))
    await asyncio.sleep(0)  # it has begun, with the limit
    one.settings = one.settings.model_copy(update={"budget_minutes": None})
    other = one.generate_kernel(CODE + "# 2\n", run_directory="free")
    stopped, (_, free) = await asyncio.gather(strict, other, return_exceptions=True)  # type: ignore[misc]
    assert isinstance(stopped, BudgetSpent) and free["stopped"] is None and free["trials"] > 1


@pytest.mark.parametrize("provider", ["templates", "manual"])
async def test_the_minutes_hold_while_the_problem_is_described(tmp_path: Path, provider: str) -> None:
    pondering = agent(tmp_path, server="--behave ponder", provider=provider, budget_minutes=0.03)
    with pytest.raises(BudgetSpent, match=r"the 0\.03 minutes are over, .*\(tracing\)\. Raise --budget-minutes, or"):
        await pondering.generate_kernel(CODE, run_directory="run")
    assert not Path("run").exists(), "there is nothing to resume"


async def test_two_runs_resumed_at_once_by_one_agent_keep_their_own_limits(tmp_path: Path) -> None:
    for name in ("strict", "free"):
        await agent(tmp_path, num_rounds=1).generate_kernel(CODE, run_directory=name)
    with Journal.open(Path("strict")) as journal:
        journal.settings = journal.settings.model_copy(update={"budget_minutes": 1e-6})
    one = agent(tmp_path, num_rounds=2)
    (_, stopped), (_, free) = await asyncio.gather(one.resume("strict"), one.resume("free"))
    assert "minutes are over" in stopped["stopped"] and (free["stopped"], free["rounds"]) == (None, 2)


async def test_two_runs_of_one_agent_at_once_pay_for_their_own_calls(tmp_path: Path) -> None:
    def reply(body: dict[str, Any]) -> Say:
        ideas = json.dumps([{"title": "Hold the row in registers", "transformation": "hold it"}])
        code = "```python\n# speed: 9\nclass ModelNew(Model):\n    pass\n```"
        return Say(ideas if "Propose" in body["messages"][-1]["content"] else code)

    given = {"provider": "custom", "model_name": "tiny", "num_rounds": 1, "seeds": False}
    async with ScriptedOpenAI(reply, gate=2) as server:  # no call is answered before both runs have made one
        one = agent(tmp_path, base_url=server.url, **given)
        found = await asyncio.gather(
            one.generate_kernel(CODE, run_directory="a"), one.generate_kernel(CODE + "# 2\n", run_directory="b")
        )
    for directory, (_, results) in zip(("a", "b"), found, strict=True):
        with Journal.open(Path(directory)) as journal:
            assert len(journal.charges()) == results["spent"]["calls"] == 3
    assert len(server.requests) == 6


def test_importing_the_agent_loads_neither_torch_nor_a_client(tmp_path: Path) -> None:
    heavy = "{'torch', 'mcp', 'openai', 'chromadb', 'sentence_transformers'} & set(sys.modules)"
    code = f"import kernel_agent.agent, sys; sys.exit(str(found) if (found := {heavy}) else 0)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
