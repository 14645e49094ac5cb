"""The client of the measuring server, against a real MCP server in a real child process."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_agent.bench.answers import EvaluateAnswer, parse
from kernel_agent.bench.client import BenchClient
from kernel_agent.errors import KernelAgentError, ProblemError, ServerError, Unavailable, Unprofiled, UsageError
from kernel_agent.interfaces import Stage
from kernel_agent.run.database import LOG
from kernel_agent.run.types import Diagnostic, Evaluation, Problem, Status
from tests.support.scripted_run import DESCRIPTION, PROBLEM, ROOT

BUILDING = Stage("building", at="building")


def server(directory: Path, *options: str) -> str:
    script = ROOT / "tests" / "support" / "scripted_bench.py"
    return " ".join([f"python {script} --log {directory / 'log'}", *options])


def pids(directory: Path) -> set[int]:
    return {json.loads(line)["pid"] for line in (directory / "log").read_text().splitlines()}


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_problem_is_described_with_its_graph_and_a_kernel_judged_twice(tmp_path: Path) -> None:
    stages: list[Stage] = []
    async with BenchClient(server(tmp_path), tmp_path) as bench:
        assert await bench.describe(PROBLEM) == DESCRIPTION
        first = await bench.evaluate(PROBLEM, "# speed: 2", stages.append)
        second = await bench.confirm(PROBLEM, "# speed: 2", DESCRIPTION.baselines)
    assert first.status is Status.PASSED and first.speedup == 2.0 and first.against("compile") is None
    only = await confirmed_without_compile(tmp_path)
    assert only.speedup == 2.0 and only.against("compile") is None
    assert second.against("compile") and stages == [BUILDING, Stage("timing", at="device")]
    assert not any(alive(pid) for pid in pids(tmp_path))


async def test_a_call_that_waits_for_the_device_is_told_its_place_as_a_number(tmp_path: Path) -> None:
    timing, queued = asyncio.Event(), asyncio.Event()
    stages: list[Stage] = []

    def first(stage: Stage) -> None:
        if stage.message == "timing":
            timing.set()

    def second(stage: Stage) -> None:
        stages.append(stage)
        if stage.ahead is not None:
            queued.set()

    async with asyncio.timeout(60), BenchClient(server(tmp_path, "--delay 600"), tmp_path) as bench:
        before = asyncio.create_task(bench.evaluate(PROBLEM, "# speed: 1", first))
        await timing.wait()
        behind = asyncio.create_task(bench.evaluate(PROBLEM, "# speed: 2", second))
        await queued.wait()
        for task in (before, behind):
            task.cancel()
        await asyncio.wait({before, behind})
    assert stages == [BUILDING, Stage("queued behind 1", 1, "waiting")]


async def test_candidates_are_profiled_in_one_call_and_their_reports_come_whole(tmp_path: Path) -> None:
    problem = Problem("relu", "# profiler", "cpu")
    async with BenchClient(server(tmp_path), tmp_path) as bench:
        first, second = await bench.profile(problem, ["a", "# crashes"])
    assert (first.bound, first.troubles, first.rung) == ("memory", ("uncoalesced",), "counters")
    assert first.findings == ("half is not needed (line 4: y[i] = x[i];)",)
    assert first.hot_lines == ("90 % of samples at line 4: y[i] = x[i]; [long_scoreboard 80 %]",)
    assert first.rules == ("Coalesce (up to 30 % of the time): Do.",)
    assert first.metrics == ("longest kernel: relu", "12.5 us at the profiler's clock", "occupancy 50 %")
    assert second.bound == "unknown" and second.why == "not profiled (run error): RuntimeError: no"
    rows = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [row["profiled"] for row in rows] == [["a", "# crashes"]]


async def test_more_candidates_than_a_call_may_hold_are_profiled_in_several(tmp_path: Path) -> None:
    async with BenchClient(server(tmp_path), tmp_path) as bench:
        assert len(await bench.profile(Problem("relu", "# profiler", "cpu"), list("abcdefghij"))) == 10
    rows = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [len(row["profiled"]) for row in rows] == [8, 2]


@pytest.mark.parametrize(
    ("source", "problem"),
    [("a", ""), *((f"# refuse: {code}", "# profiler") for code in ("COUNTERS_DENIED", "TOOK_TOO_LONG", "INTERNAL"))],
)
async def test_a_server_that_cannot_profile_measures_on(tmp_path: Path, source: str, problem: str) -> None:
    async with BenchClient(server(tmp_path), tmp_path) as bench:
        with pytest.raises(Unprofiled):
            await bench.profile(Problem("relu", problem, "cpu"), [source])
        assert (await bench.evaluate(PROBLEM, "# speed: 2")).speedup == 2.0


async def confirmed_without_compile(directory: Path) -> Evaluation:
    problem = Problem("x", "# no compile", "cpu")
    async with BenchClient(server(directory), directory) as bench:
        baselines = (await bench.describe(problem)).baselines
        return await bench.confirm(problem, "# speed: 2", baselines)


async def test_a_failed_kernel_is_a_result(tmp_path: Path) -> None:
    async with BenchClient(server(tmp_path), tmp_path) as bench:
        evaluation = await bench.evaluate(PROBLEM, "# verdict: build_error")
    assert (evaluation.status, evaluation.timing) == (Status.BUILD_ERROR, None)
    assert evaluation.log.startswith("scripted build_error")


def test_a_compilers_errors_and_the_warnings_by_either_name_are_kept() -> None:
    said = [{"severity": kind, "text": kind, "line": 3, "candidate_line": 9} for kind in ("error", "warning")]
    row = {"status": "build_error", "log": "log", "notes": ["note"], "leads": ["warned"]}
    for answer in (row, row | {"warnings": ["warned"], "diagnostics": said}):
        evaluation = parse(EvaluateAnswer, answer).evaluation(with_warnings=True)
        assert evaluation.log == "log\nnote\nwarned"
    assert evaluation.diagnostics == (Diagnostic("error", "error", line=3, candidate_line=9),)
    assert "warned" not in parse(EvaluateAnswer, row).evaluation(with_warnings=False).log


async def test_the_environment_is_read_and_keys_stay_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("HF_TOKEN", "secret")
    async with BenchClient(server(tmp_path), tmp_path) as bench:
        environment = await bench.environment()
    assert [target.name for target in environment.targets if target.available] == ["cpu"]
    names = {tool.name for tool in environment.tools}
    assert "CUDA_VISIBLE_DEVICES" in names and "PYTHONPATH" in names
    assert not names & {"OPENAI_API_KEY", "HF_TOKEN"}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("BAD_PROBLEM", ProblemError),
        ("BAD_ARGUMENT", UsageError),
        ("UNKNOWN_TARGET", UsageError),
        ("NO_DEVICE", Unavailable),
        ("NO_COMPILER", Unavailable),
        ("UNSUPPORTED_VERSION", Unavailable),
        ("INTERNAL", ServerError),
        ("SOMETHING_ELSE", ServerError),
    ],
)
async def test_a_refusal_is_the_exception_its_code_stands_for(
    tmp_path: Path, code: str, kind: type[KernelAgentError]
) -> None:
    async with BenchClient(server(tmp_path), tmp_path) as bench:
        with pytest.raises(KernelAgentError, match="so it was ordered") as caught:
            await bench.describe(Problem("x", f"# refuse: {code}", "cpu"))
    assert type(caught.value) is kind


async def test_an_answer_that_is_not_understood_says_where(tmp_path: Path) -> None:
    async with BenchClient(server(tmp_path, "--behave malformed"), tmp_path) as bench:
        with pytest.raises(ServerError, match=r"describeanswer.*device\.name"):
            await bench.describe(PROBLEM)


async def test_a_command_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="there is no command nonsense"):
        async with BenchClient("nonsense --serve", tmp_path):
            pass


@pytest.mark.parametrize("path", [" ", "'", "python 'half"])
async def test_what_is_no_command_is_told(tmp_path: Path, path: str) -> None:
    with pytest.raises(ServerError, match=f"`{path}` is no command"):
        async with BenchClient(path, tmp_path):
            pass


async def test_a_server_that_does_not_start_is_quoted(tmp_path: Path) -> None:
    (tmp_path / LOG).write_text("words of an earlier server\n")
    with pytest.raises(ServerError, match=r"does not start.*`scripted: refuses to start`"):
        async with BenchClient(server(tmp_path, "--behave 'not start'"), tmp_path):
            pass


async def test_an_address_where_nobody_answers_is_named(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match=r"`http://127\.0\.0\.1:9/mcp` does not answer"):
        async with BenchClient("http://127.0.0.1:9/mcp", tmp_path):
            pass


async def test_a_server_is_reached_by_its_address_too(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(ROOT / "tests" / "support" / "scripted_bench.py"), "--log", str(tmp_path / "log")]
    command += ["--port", str(port)]
    home = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=home) as process:
        assert process.stderr and any("running on" in line for line in process.stderr)
        try:
            async with BenchClient(f"http://127.0.0.1:{port}/mcp", tmp_path) as bench:
                assert await bench.describe(PROBLEM) == DESCRIPTION
                stages: list[Stage] = []
                assert (await bench.evaluate(PROBLEM, "# speed: 2", stages.append)).speedup == 2.0
                assert BUILDING in stages
        finally:
            process.kill()


async def test_a_server_killed_in_the_middle_is_restarted_once_and_its_calls_repeated(tmp_path: Path) -> None:
    notices: list[str] = []
    path = server(tmp_path, "--die-at 2", "--behave 'die once'", "--delay 0.05")
    async with BenchClient(path, tmp_path, on_notice=notices.append) as bench:
        work = (bench.evaluate(PROBLEM, f"# speed: {n}") for n in range(1, 5))
        found: list[Evaluation] = await asyncio.gather(*work)
    assert [evaluation.speedup for evaluation in found] == [1, 2, 3, 4]
    assert notices == ["The measuring server died; it is started once more."]


async def test_a_server_killed_again_stops_all_and_the_error_says_how_to_go_on(tmp_path: Path) -> None:
    async with BenchClient(server(tmp_path, "--die-at 1"), tmp_path) as bench:
        for _ in range(2):
            with pytest.raises(ServerError, match=r"died again.*resume"):
                await bench.evaluate(PROBLEM, "# speed: 2")


async def test_a_server_that_dies_now_and_then_is_started_each_time(tmp_path: Path) -> None:
    notices: list[str] = []
    async with BenchClient(server(tmp_path, "--die-at 3"), tmp_path, on_notice=notices.append) as bench:
        found = [(await bench.evaluate(PROBLEM, f"# speed: {n}")).speedup for n in range(1, 8)]
    assert found == [1, 2, 3, 4, 5, 6, 7]
    assert notices == ["The measuring server died; it is started once more."] * 3


async def test_one_call_that_kills_each_server_is_an_error_and_others_are_answered(tmp_path: Path) -> None:
    async with BenchClient(server(tmp_path), tmp_path) as bench:
        with pytest.raises(ServerError, match=r"died again.*resume"):
            await bench.evaluate(PROBLEM, "# kill the server")
        assert not bench.is_lost
        assert (await bench.evaluate(PROBLEM, "# speed: 2")).speedup == 2.0


async def test_a_cancelled_call_leaves_no_child(tmp_path: Path) -> None:
    building = asyncio.Event()

    async def use() -> None:
        async with BenchClient(server(tmp_path, "--delay 600"), tmp_path) as bench:
            await bench.evaluate(PROBLEM, "# speed: 1", lambda _: building.set())

    async with asyncio.timeout(60):
        task = asyncio.create_task(use())
        await building.wait()
        async with asyncio.timeout(5):
            task.cancel()
            await asyncio.wait({task})
    assert task.cancelled()
    assert not children()


async def test_closing_while_the_server_is_still_starting_does_not_wait_for_it(tmp_path: Path) -> None:
    async with asyncio.timeout(5):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2), BenchClient(server(tmp_path, "--behave hang"), tmp_path):
                pass
    assert not children()


def children() -> list[int]:
    """The living children of this process (zombies are not counted)."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(parent) == os.getpid() and state != "Z":
            found.append(int(stat.parent.name))
    return found
