"""profile_kernel and the tools that read reports, over a real server that finds a stand-in for Nsight Compute."""

import asyncio
import json
import os
import platform
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from mcp import MCPError

from ncu_server.compiler.builds import Build
from ncu_server.harness import process
from ncu_server.sandbox.supervisor import Supervisor
from ncu_server.wire.meta import WHOLE
from ncu_server.worker.handoff import TRACE, read
from tests.support.edits import edit
from tests.support.measuring import QUICK, SCALE_ADD, Server, descendants, opened
from tests.support.nsight import parameters

pytestmark = pytest.mark.asyncio(loop_scope="session")

LETTERS_A_TOKEN, TOKENS = 3.6, 2500


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def nsight(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    async with opened(parameters(tmp_path_factory.mktemp("nsight"))) as found:
        yield found


def bidding(word: str) -> str:
    return f"{QUICK}\n# under ncu: {word}\n"


async def profiled(server: Server, **arguments: Any) -> dict[str, Any]:
    answer = await server.call("profile_kernel", **arguments)
    assert not answer.is_error, answer.content
    assert answer.structured_content is not None
    assert len(json.dumps(answer.structured_content)) / LETTERS_A_TOKEN < TOKENS * 1.1
    return answer.structured_content


async def test_a_command_is_profiled_with_progress_and_its_report_can_be_read_again(nsight: Server) -> None:
    said: list[str] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        said.append(message or "")

    given = {"command": ["/bin/true", "launches"]}
    answer = (await nsight.client.call_tool("profile_kernel", given, progress_callback=note)).structured_content
    assert answer is not None
    assert any(words.startswith("profiling scale_add: ") for words in said)
    report = answer["profiles"][0]["report"]
    assert report["rung"] == "counters" and report["digest"]["bound"] == "memory"
    assert "23 passes" in report["collected"]
    again = (await nsight.call("read_report", report=report["report_id"])).structured_content
    assert again == report
    page = (await nsight.call("query_metrics", report_id=report["report_id"], pattern="dram__*")).structured_content
    assert page and page["total"] > 3
    whole = await nsight.client.read_resource(f"{report['uri']}/rules")
    assert [r["title"] for r in json.loads(getattr(whole.contents[0], "text", ""))[0]["rules"]] == [
        "Small",
        "Large",
        "Fine",
    ]
    with pytest.raises(MCPError, match="no part"):
        await nsight.client.read_resource(f"{report['uri']}/nothing")


@pytest.mark.parametrize(
    ("word", "code", "fix"),
    [
        ("denied", "COUNTERS_DENIED", "NVreg_RestrictProfilingToAdminUsers=0"),
        ("busy", "COUNTERS_BUSY", "dcgmi"),
        ("locked", "LOCKED", "nsight-compute-lock"),
        ("nothing", "NO_KERNEL_MATCH", "softmax_kernel, gemm<128, 64>"),
        ("odd", "NCU_FAILED", "nobody has heard of"),
        ("truncated", "BAD_REPORT", "cut short"),
        ("newer", "READER_TOO_OLD", "pip install -U ncu-report"),
    ],
)
async def test_what_keeps_ncu_from_its_work_is_a_code_and_what_to_do(
    nsight: Server, word: str, code: str, fix: str
) -> None:
    refusal = await nsight.refusal("profile_kernel", command=["/bin/true", word])
    assert refusal.startswith(f"{code}: ") and fix in refusal


async def test_a_hang_ends_at_the_timeout_and_leaves_nothing(nsight: Server) -> None:
    before = descendants(os.getpid())
    refusal = await nsight.refusal("profile_kernel", command=["/bin/true", "hang"], timeout_s=2)
    assert refusal.startswith("TOOK_TOO_LONG: ")
    assert not descendants(os.getpid()) - before
    assert nsight.cache is not None and not list(nsight.cache.rglob("profile-*"))


async def test_a_cancelled_profile_leaves_nothing_and_frees_the_device(nsight: Server) -> None:
    before = descendants(os.getpid())
    stuck = asyncio.Event()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        if message and message.startswith("profiling stuck"):
            stuck.set()

    given = {"command": ["/bin/true", "hang"]}
    call = asyncio.create_task(nsight.client.call_tool("profile_kernel", given, progress_callback=note))
    await stuck.wait()
    call.cancel()
    async with asyncio.timeout(10):
        while descendants(os.getpid()) - before:
            await asyncio.sleep(0.02)
    assert (await profiled(nsight, command=["/bin/true", "launches"]))["profiles"][0]["status"] == "profiled"


async def test_several_candidates_share_a_start_and_each_has_a_report_of_its_own(nsight: Server) -> None:
    sources = [bidding("launches"), bidding("raise"), bidding("launches") + "# other\n", "x = 1\n"]
    answer = await profiled(nsight, candidates=sources, problem=SCALE_ADD)
    assert [p["status"] for p in answer["profiles"]] == ["profiled", "run_error", "profiled", "rejected"]
    first, failed, third, _ = answer["profiles"]
    assert "too much" in failed["log"]
    assert first["report"]["report_id"] != third["report"]["report_id"]
    assert first["report"]["notes"] == third["report"]["notes"] and "walls" not in first["report"]["notes"][0]
    (finding,) = (f for f in first["report"]["digest"]["findings"] if f["trouble"] == "uncoalesced")
    text = finding["place"]["text"]
    assert sources[0].splitlines()[finding["place"]["candidate_line"] - 1].strip() == text


async def test_a_program_gets_all_reports_whole_in_one_call_and_a_model_what_fits(nsight: Server) -> None:
    given = {"candidates": [bidding("launches") + f"# {n}\n" for n in range(6)], "problem": SCALE_ADD}
    cut = [p["report"]["digest"] for p in (await profiled(nsight, **given))["profiles"]]
    answer = (await nsight.client.call_tool("profile_kernel", given, meta={WHOLE: True})).structured_content
    assert answer is not None and None in cut
    whole = [p["report"]["digest"] for p in answer["profiles"]]
    assert None not in whole and len(json.dumps(whole[0])) > len(json.dumps(cut[0]))


async def test_a_crash_in_a_batch_costs_only_the_candidate_that_crashed(nsight: Server) -> None:
    said: list[str] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        said.append(message or "")

    given = {"candidates": [bidding("launches"), bidding("crash"), bidding("launches") + "#\n"], "problem": SCALE_ADD}
    answer = (await nsight.client.call_tool("profile_kernel", given, progress_callback=note)).structured_content
    assert answer is not None
    assert [p["status"] for p in answer["profiles"]] == ["profiled", "run_error", "profiled"]
    first = await profiled(nsight, candidates=[bidding("crash"), bidding("launches")], problem=SCALE_ADD)
    assert [p["status"] for p in first["profiles"]] == ["run_error", "profiled"]
    killed = await profiled(nsight, candidates=[bidding("segfault")], problem=SCALE_ADD)
    assert killed["profiles"][0]["status"] == "run_error"
    assert "ended with code 139 before" in killed["profiles"][0]["log"]
    starts = [s for s in said if s.startswith("starting ncu for")]
    assert starts[0] == "starting ncu for 3 candidates"
    lone = [s for s in starts if s != starts[0]]  # a heartbeat may say any of them again
    assert set(lone) == {"starting ncu for 1 candidate"} and len(lone) >= 2


async def test_where_no_rung_holds_the_first_refusal_is_told(nsight: Server) -> None:
    """Without a tool that reads libraries that is all; with one, what it sees is told as well: no kernel."""
    answer = await nsight.call("profile_kernel", candidates=[bidding("denied")], problem=SCALE_ADD)
    if (found := answer.structured_content) is None:
        assert getattr(answer.content[0], "text", "").startswith("COUNTERS_DENIED: ")
    else:
        assert found["refused"][0]["code"] == "COUNTERS_DENIED"
        assert found["profiles"][0]["status"] == "no_kernel"


SUMS = """
import tvm_ffi.cpp
SOURCE = r'''
#include <cmath>
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y, tvm::ffi::TensorView o) {
  const float *a = static_cast<float*>(x.data_ptr()), *b = static_cast<float*>(y.data_ptr());
  float* d = static_cast<float*>(o.data_ptr());
  for (int64_t i = 0, n = x.numel(); i < n; ++i) d[i] = BODY;
}
'''
kernel = tvm_ffi.cpp.load_inline("sums", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3", "-mavx2"])
class ModelNew: pass
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="inner loops are read off x86-64's instructions")
async def test_for_the_cpu_the_inner_loops_are_told(nsight: Server) -> None:
    sums = [edit(SUMS, "BODY", body) for body in ("a[i] * 2.0f + b[i]", "powf(a[i], b[i]) * 2.0f")]
    found = await profiled(nsight, candidates=[*sums, "import ("], problem=SCALE_ADD, target="cpu")
    fast, slow, broken = found["profiles"]
    assert broken["status"] == "build_error"
    assert [refused["rung"] for refused in found["refused"]] == ["counters", "timeline"]
    assert (fast["report"]["rung"], slow["report"]["rung"]) == ("static", "static")
    loop = fast["report"]["static"][0]["loops"][0]
    assert (loop["vector"], loop["scalar"], loop["calls"]) == (2, 0, [])
    loop = slow["report"]["static"][0]["loops"][0]
    assert (loop["vector"], loop["scalar"], loop["calls"]) == (0, 1, ["powf"])


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({}, "BAD_ARGUMENT"),
        ({"candidates": [], "problem": SCALE_ADD}, "BAD_ARGUMENT"),
        ({"candidates": [QUICK]}, "BAD_ARGUMENT"),
        ({"candidates": [QUICK] * 9, "problem": SCALE_ADD}, "BAD_ARGUMENT"),
        ({"candidates": [QUICK], "problem": SCALE_ADD, "target": "tpu"}, "UNKNOWN_TARGET"),
        ({"command": ["a", "b\0c"]}, "BAD_ARGUMENT"),
        ({"command": ["/bin/true", "launches"], "detail": "--mode=attach"}, "BAD_ARGUMENT"),
        ({"command": ["/bin/true", "launches"], "kernel_regex": "("}, "BAD_ARGUMENT"),
    ],
)
async def test_what_cannot_be_served_is_refused(nsight: Server, given: dict[str, Any], code: str) -> None:
    assert (await nsight.refusal("profile_kernel", **given)).startswith(f"{code}: ")


@pytest.mark.parametrize(
    ("tool", "given", "code"),
    [
        ("read_report", {"report": "/etc/passwd"}, "BAD_REPORT"),
        ("read_report", {"report": "/no/such/file"}, "BAD_REPORT"),
        ("read_report", {"report": "0123456789ab"}, "UNKNOWN_REPORT"),
        ("query_metrics", {"report_id": "0123456789ab", "pattern": "x"}, "UNKNOWN_REPORT"),
        ("compare_reports", {"before": "0123456789ab", "after": "../.."}, "UNKNOWN_REPORT"),
    ],
)
async def test_reports_that_are_not_there_are_refused(
    nsight: Server, tool: str, given: dict[str, Any], code: str
) -> None:
    assert (await nsight.refusal(tool, **given)).startswith(f"{code}: ")


async def test_whether_counters_are_allowed_is_found_by_trying(nsight: Server) -> None:
    answer = (await nsight.call("check_environment", probe_counters=True)).structured_content
    assert answer and answer["counters"]["state"] == "allowed"
    assert (await nsight.call("check_environment")).structured_content["counters"] is None  # type: ignore[index]


async def test_without_a_gpu_whether_counters_are_allowed_is_unknown(tmp_path: Path) -> None:
    async with opened(parameters(tmp_path, gpu=False)) as server:
        answer = (await server.call("check_environment", probe_counters=True)).structured_content
    assert answer and answer["counters"]["state"] == "unknown" and answer["counters"]["fix"]


async def test_reports_outlive_the_server(tmp_path: Path) -> None:
    async with opened(parameters(tmp_path)) as server:
        first = (await profiled(server, command=["/bin/true", "launches"]))["profiles"][0]["report"]["report_id"]
    async with opened(parameters(tmp_path, gpu=False)) as server:
        again = (await server.call("read_report", report=first)).structured_content
        assert again and again["report_id"] == first
        both = (await server.call("compare_reports", before=first, after=first)).structured_content
        assert both and both["comparable"] and "as long as before" in both["says"][0]


async def test_the_process_that_is_profiled_loads_and_calls_each_candidate(tmp_path: Path) -> None:
    good = "import torch\nclass ModelNew(torch.nn.Module):\n    def __init__(self, s):\n        super().__init__()\n"
    good += "    def forward(self, x, y):\n        return x + y\n"
    sources = [good, edit(good, "x + y", "x @ 'no'"), good]
    jobs = [process.Job(i, source, Build([], str(tmp_path), 0.0)) for i, source in enumerate(sources)]
    line = process.prepare(tmp_path / "run", SCALE_ADD, process.none("cpu"), jobs, warms_up=False, timeline=True)
    ended = await Supervisor(tmp_path / "run").run(line, 120, merged=True)
    said = read(tmp_path / "run")
    assert (ended.code, said.done, set(said.faults)) == (0, {0, 2}, {1})
    assert "TypeError" in said.faults[1]
    assert (tmp_path / "run" / TRACE.format(0)).exists()


REACHING = """
import threading, torch

def tried(what):
    try:
        what()
    except OSError:
        return "no"
    return "yes"

def named():
    # As CUDA does with each thread that it starts.
    with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as comm:
        comm.write("mine")

class ModelNew(torch.nn.Module):
    def __init__(self, s):
        super().__init__()

    def forward(self, x, y):
        places = [lambda: open("inside", "w"), named, lambda: open("OUTSIDE", "w"), lambda: open("OUTSIDE-read")]
        print("reached:", *map(tried, places), flush=True)
        return x + y
"""


async def test_a_candidate_under_a_profiler_names_its_threads_and_reaches_no_file(
    tmp_path: Path,
) -> None:
    place, outside = tmp_path / "run", tmp_path / "outside"
    Path(f"{outside}-read").touch()
    jobs = [process.Job(0, edit(REACHING, "OUTSIDE", str(outside), times=2), Build([], str(tmp_path / "built"), 0.0))]
    (tmp_path / "built").mkdir()
    line = process.prepare(place, SCALE_ADD, process.inside("cpu", jobs), jobs, warms_up=False)
    profiler = ["sh", "-c", '"$@"; exit $?', "profiler"]
    await Supervisor(place, process.outside("cpu"), process.environment(os.environ, place)).run([*profiler, *line], 120)
    said = read(place)
    assert said.done == {0}, said
    assert set(said.output.splitlines()) == {"reached: yes yes no no"}
