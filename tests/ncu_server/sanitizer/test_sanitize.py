"""sanitize_kernel over a real server: a stand-in replays records; on a GPU the real tool finds what is planted."""

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ncu_server.sanitizer.records import grouped, records
from tests.support.edits import edit
from tests.support.kernels import CANDIDATE
from tests.support.measuring import QUICK, SCALE_ADD, Server, descendants, opened, server_parameters
from tests.support.nsight import parameters
from tests.support.paths import NSIGHT

pytestmark = pytest.mark.asyncio(loop_scope="session")
MOST_CHARACTERS = 8_000
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def nsight(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    async with opened(parameters(tmp_path_factory.mktemp("sanitizer"))) as found:
        yield found


async def found(server: Server, **given: Any) -> dict[str, Any]:
    answer = await server.call("sanitize_kernel", **given)
    assert answer.structured_content is not None, answer.content
    assert len(json.dumps(answer.structured_content)) <= MOST_CHARACTERS
    return answer.structured_content


def bidding(word: str) -> dict[str, str]:
    return {"candidate": f"{QUICK}\n# under sanitizer: {word}\n", "problem": SCALE_ADD}


@pytest.mark.parametrize("tool", TOOLS)
async def test_a_program_with_nothing_wrong_is_clean_under_each_tool(nsight: Server, tool: str) -> None:
    answer = await found(nsight, command=["./prog", "clean"], tool=tool)
    assert (answer["status"], answer["clean"], answer["errors"], answer["tool"]) == ("clean", True, [], tool)


async def test_what_many_threads_do_at_one_line_is_one_error_with_a_count(nsight: Server) -> None:
    answer = await found(nsight, command=["./prog", "outside"])
    (error,) = answer["errors"]
    assert (answer["status"], answer["clean"], answer["total"]) == ("errors", False, 96)
    assert error["count"] == 96 and error["thread"] == [0, 0, 0] and error["block"] == [2, 0, 0]
    assert (error["kind"], error["severity"], error["size_bytes"]) == ("Precise", "error", 4)
    assert (error["at"]["file"], error["at"]["line"], error["at"]["kernel"]) == ("kernel.cu", 8, "scale_add(float *)")
    assert error["other"] is None, "the host's stack is no place in a kernel"


async def test_a_race_names_both_sides_and_an_uninitialised_read_its_caller(nsight: Server) -> None:
    (race,) = (await found(nsight, command=["./prog", "race"], tool="racecheck"))["errors"]
    assert (race["severity"], race["at"]["line"], race["other"]["line"]) == ("warning", 8, 12)
    answer = await found(nsight, command=["./prog", "uninitialised"], tool="initcheck")
    (read,) = answer["errors"]
    assert answer["total"] == 1 and "Uninitialized" in read["text"]
    assert (read["at"]["kernel"], read["other"]["kernel"]) == ("scale_add(float *)", "helper(int)")


async def test_an_error_of_the_api_has_no_place(nsight: Server) -> None:
    (error,) = (await found(nsight, command=["./prog", "api"]))["errors"]
    assert "cudaErrorInvalidConfiguration" in error["text"] and error["at"]["file"] is None


async def test_errors_of_a_candidate_point_into_its_own_source(nsight: Server) -> None:
    answer = await found(nsight, **bidding("outside"), target="cuda")
    (error,) = answer["errors"]
    assert answer["status"] == "errors" and "CUDA error" in answer["log"]
    line = bidding("")["candidate"].splitlines()[error["at"]["candidate_line"] - 1]
    assert line.strip() == error["at"]["text"] and "int64_t" in line


async def test_records_cut_short_are_errors_and_said_to_be_cut(nsight: Server) -> None:
    answer = await found(nsight, command=["./prog", "truncated"])
    assert answer["status"] == "errors" and 1 <= answer["total"] < 3 and "cut short" in answer["notes"][0]


async def test_errors_without_records_are_never_called_clean(nsight: Server) -> None:
    answer = await found(nsight, command=["./prog", "unsaved"])
    assert (answer["status"], answer["clean"]) == ("errors", False) and "ERROR SUMMARY" in answer["log"]


@pytest.mark.parametrize(
    ("word", "status", "words"),
    [("clean", "clean", ""), ("raise", "run_error", "CUDA error"), ("silent", "run_error", "without a word")],
)
async def test_a_candidate_that_does_not_come_to_its_end_is_not_clean(
    nsight: Server, word: str, status: str, words: str
) -> None:
    answer = await found(nsight, **bidding(word))
    assert answer["status"] == status and words in answer["log"]


async def test_a_candidate_that_does_not_build_says_why(nsight: Server) -> None:
    answer = await found(nsight, candidate="def f(:", problem=SCALE_ADD)
    assert answer["status"] == "build_error" and answer["log"]


async def test_a_sanitizer_that_comes_to_no_result_is_quoted(nsight: Server) -> None:
    refusal = await nsight.refusal("sanitize_kernel", command=["./prog", "terminated"])
    assert refusal.startswith("SANITIZER_FAILED: ") and "before first instrumented API call" in refusal


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "give a candidate and its problem"),
        ({"command": ["x"], "kernel": "a b"}, "'kernel' cannot be used"),
        ({"command": ["x"], "tool": "helgrind"}, "'tool' cannot be used"),
        ({"candidate": QUICK, "problem": SCALE_ADD, "target": "cpu"}, "targets cuda and triton"),
    ],
)
async def test_arguments_that_make_no_sense_are_refused(nsight: Server, given: dict[str, Any], words: str) -> None:
    refusal = await nsight.refusal("sanitize_kernel", **given)
    assert refusal.startswith("BAD_ARGUMENT: ") and words in refusal


async def test_a_run_out_of_time_is_a_status_and_leaves_no_process(nsight: Server) -> None:
    before = descendants(os.getpid())
    answer = await found(nsight, command=["./prog", "hang"], timeout_s=2)
    assert answer["status"] == "timeout" and answer["clean"] is False
    await _gone(before)


async def test_a_cancelled_run_leaves_no_process_and_frees_the_device(nsight: Server) -> None:
    before = descendants(os.getpid())
    running = asyncio.Event()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        if message and message.startswith("running"):
            running.set()

    given = {"command": ["./prog", "hang"]}
    call = asyncio.create_task(nsight.client.call_tool("sanitize_kernel", given, progress_callback=note))
    await running.wait()
    async with asyncio.timeout(20):
        while not descendants(os.getpid()) - before:
            await asyncio.sleep(0.02)
    call.cancel()
    await _gone(before)
    assert (await found(nsight, command=["./prog", "clean"]))["clean"]


async def _gone(before: set[int]) -> None:
    async with asyncio.timeout(10):
        while descendants(os.getpid()) - before:
            await asyncio.sleep(0.02)


async def test_a_server_without_the_tool_says_how_to_get_it(tmp_path: Path) -> None:
    bare = parameters(tmp_path)
    assert bare.env is not None
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "nvidia-smi").symlink_to(Path(bare.env["PATH"].partition(":")[0]) / "nvidia-smi")
    bare.env |= {"PATH": f"{folder}:/usr/bin:/bin"}
    async with opened(bare) as server:
        refusal = await server.refusal("sanitize_kernel", command=["x"])
    assert refusal.startswith("NO_SANITIZER: ") and "pip install nvidia-cuda-sanitizer-api" in refusal


async def test_a_machine_without_a_gpu_refuses(server: Server) -> None:
    refusal = await server.refusal("sanitize_kernel", command=["x"])
    assert refusal.startswith(("NO_SANITIZER: ", "NO_DEVICE: "))


async def test_records_that_nobody_knows_are_kept_with_what_is_understood() -> None:
    record = b"<record><kind>New</kind><what><text>odd</text></what><more/></record>"
    (error,), whole = records(b"<ComputeSanitizerOutput>" + record + b"</ComputeSanitizerOutput>")
    assert whole and (error.kind, error.text, error.severity) == ("New", "odd", "error")
    assert records(b"") == ([], False) and records(b"<ComputeSanitizerOutput/>") == ([], True)
    assert [e.count for e in grouped([error, error])] == [2]


PLANTED = {
    "memcheck": ("if (i < m) o[i]", "if (i < m) o[i + (1 << 28)]", "is out of bounds"),
    "racecheck": (
        "if (i < m) o[i] = x[i] * s + y[i] + b[i % n];",
        "__shared__ float t[256]; t[threadIdx.x] = x[i % m];\n  if (i < m) o[i] = t[(threadIdx.x + 33) % 256] * s;",
        "Race",
    ),
    "initcheck": ("out = torch.empty_like(x)", "x, out = torch.empty_like(x), torch.empty_like(x)", "Uninitialized"),
}


@pytest.mark.gpu
@pytest.mark.parametrize("tool", PLANTED)
async def test_what_is_planted_in_a_kernel_is_found_with_its_line(tmp_path: Path, tool: str) -> None:
    before, after, words = PLANTED[tool]
    assert before in CANDIDATE
    planted = edit(CANDIDATE, before, after)
    async with opened(server_parameters(tmp_path)) as server:
        answer = await found(server, candidate=planted, problem=SCALE_ADD, target="cuda", tool=tool)
        print(json.dumps(answer, indent=1))
        assert answer["status"] == "errors", answer
        error = answer["errors"][0]
        assert words in error["text"] and "scale_add" in error["at"]["kernel"] and error["at"]["line"]
        assert "[i" in planted.splitlines()[error["at"]["candidate_line"] - 1]
        healthy = await found(server, candidate=CANDIDATE, problem=SCALE_ADD, target="cuda", tool=tool)
        assert healthy["clean"], healthy


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("tool", "fault", "words"),
    [
        ("memcheck", "outside", "beyond the end"),
        ("racecheck", "race", "t["),
        ("initcheck", "uninitialised", "nobody wrote"),
    ],
)
async def test_what_is_planted_in_a_program_is_found_with_its_line(
    tmp_path: Path, tool: str, fault: str, words: str
) -> None:
    source = NSIGHT / "planted.cu"
    subprocess.run(["nvcc", "-arch=native", "-lineinfo", "-o", tmp_path / "planted", source], check=True)
    async with opened(server_parameters(tmp_path)) as server:
        answer = await found(server, command=[str(tmp_path / "planted"), fault], tool=tool)
    print(json.dumps(answer, indent=1))
    assert answer["status"] == "errors", answer
    at = answer["errors"][0]["at"]
    assert at["file"] == "planted.cu" and words in source.read_text().splitlines()[at["line"] - 1]
    assert fault in at["kernel"]
