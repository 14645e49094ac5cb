"""compile_kernel with a real nvcc and no GPU: diagnostics and resources as data, handles, walls, no process left."""

import asyncio
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.edits import edit
from tests.support.kernels import BROKEN, CANDIDATE, SPILLS
from tests.support.measuring import SCALE_ADD, Server, descendants, opened, server_parameters

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH"),
]
MOST_CHARACTERS = 8_000
MANY = """
__global__ void k{0}(int* p) {{
  float v[64];
  for (int r = 0; r < 99; ++r)
    for (int j = 0; j < 64; ++j) v[j] = p[j] * v[(j * {0} + r) & 63];
  p[{0}] = v[{0} % 64];
}}
"""
FOREVER = "".join(MANY.format(i) for i in range(3000))


async def compiled(server: Server, **given: Any) -> dict[str, Any]:
    answer = await server.call("compile_kernel", **given)
    assert answer.structured_content is not None, answer.content
    assert len(json.dumps(answer.structured_content)) <= MOST_CHARACTERS
    return answer.structured_content


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
async def test_registers_shared_memory_and_spills_come_back_for_each_kernel(server: Server, arch: str) -> None:
    found = await compiled(server, source=SPILLS, arch=arch)
    assert found["status"] == "compiled" and found["arch"].startswith(arch) and "release" in found["compiler"]
    spills, axpy = found["kernels"]
    assert spills["name"] == "spills" and spills["spill_load_bytes"] > 100 and spills["spill_store_bytes"] > 100
    assert (
        spills["registers"] <= 32 and spills["shared_bytes"] == 1024 and spills["possible_occupancy_pct"]["1024"] == 100
    )
    assert axpy["name"].startswith("void axpy<float>(") and axpy["spill_load_bytes"] == 0 and axpy["registers"] < 20
    words = await server.client.read_resource(f"ncu://build/{found['build_id']}/ptxas")
    assert "bytes spill stores" in getattr(words.contents[0], "text", "")


@pytest.mark.long
async def test_a_candidate_is_compiled_as_evaluate_kernel_would_build_it(server: Server) -> None:
    found = await compiled(server, candidate=CANDIDATE, arch="sm_90")
    assert found["status"] == "compiled" and found["arch"] == "sm_90a"
    assert [k["name"].partition("(")[0] for k in found["kernels"]] == ["scale_add"]
    assert {uri.rpartition("/")[2] for uri in found["resources"]} == {"sass", "ptx", "ptxas"}


async def test_what_the_compiler_says_is_data_with_the_line_in_the_candidate(server: Server) -> None:
    broken = edit(CANDIDATE, "if (i < m)", "int never_used;\n  if (i < missing)")
    found = await compiled(server, candidate=broken)
    assert found["status"] == "build_error" and found["build_id"] is None
    first = found["diagnostics"][0]
    assert (first["severity"], first["text"]) == ("error", 'identifier "missing" is undefined')
    lines = broken.splitlines()
    assert "i < missing" in first["source"] and "i < missing" in lines[first["candidate_line"] - 1]


async def test_errors_come_before_warnings_and_name_their_line(server: Server) -> None:
    found = await compiled(server, source=BROKEN)
    assert found["status"] == "build_error"
    said = [(d["severity"], d["line"], d["file"]) for d in found["diagnostics"]]
    assert said == [("error", 3, "source.cu"), ("error", 5, "source.cu"), ("warning", 4, "source.cu")]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            "__global__ void f(float* x) { __shared__ float s[100000]; s[threadIdx.x] = x[0]; x[1] = s[3]; }",
            "too much shared",
        ),
        ('__global__ void f(float* x) { asm("nonsense;"); }', "Not a name of any known instruction"),
        ("#error stop here", "stop here"),
    ],
)
async def test_faults_of_every_stage_are_diagnostics(server: Server, source: str, words: str) -> None:
    found = await compiled(server, source=source)
    assert found["status"] == "build_error" and found["diagnostics"][0]["severity"] == "error"
    assert words in found["diagnostics"][0]["text"]


async def test_a_thousand_errors_are_counted_and_the_first_are_shown(server: Server) -> None:
    found = await compiled(server, source="\n".join(f"int a{i} = missing_{i};" for i in range(90)))
    assert len(found["diagnostics"]) == 14 and found["left_out"]["diagnostics"] > 50


async def test_flags_change_the_code_and_only_such_flags_are_taken(server: Server) -> None:
    plain = await compiled(server, source=SPILLS, arch="sm_90")
    fewer = await compiled(server, source=SPILLS, arch="sm_90", flags=["-Xptxas=-O0", "-DN=4"])
    assert fewer["build_id"] != plain["build_id"]
    assert fewer["kernels"][0]["stack_bytes"] != plain["kernels"][0]["stack_bytes"]
    for flag in ("-o/tmp/x", "--compiler-options=-fplugin=x.so", "-I/etc", "-ccbin=/bin/sh", "-DX=$(id)", "a.cu"):
        refusal = await server.refusal("compile_kernel", source=SPILLS, flags=[flag])
        assert refusal.startswith("BAD_ARGUMENT: ") and "not allowed" in refusal


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"source": SPILLS, "arch": "sm_10"}, "does not compile for sm_10; it does for: sm_75"),
        ({"source": SPILLS, "arch": "native"}, "is none; give one such as"),
        ({"source": SPILLS, "candidate": CANDIDATE}, "give either"),
        ({}, "give either"),
    ],
)
async def test_arguments_that_make_no_sense_are_refused(server: Server, given: dict[str, Any], words: str) -> None:
    refusal = await server.refusal("compile_kernel", **given)
    assert refusal.startswith("BAD_ARGUMENT: ") and words in refusal


async def test_the_same_source_has_the_same_id_also_after_a_restart(tmp_path: Path) -> None:
    async with opened(server_parameters(tmp_path)) as first:
        made = await compiled(first, source=SPILLS, arch="sm_90")
    async with opened(server_parameters(tmp_path)) as second:
        shown = await second.call("disassemble", build_id=made["build_id"], kernel="axpy", level="ptx")
        assert shown.structured_content and "fma.rn.f32" in shown.structured_content["text"]
        assert await compiled(second, source=SPILLS, arch="sm_90") == made


@pytest.mark.long
async def test_what_was_compiled_stands_for_its_source_where_a_candidate_is_asked_for(server: Server) -> None:
    made = await compiled(server, candidate=CANDIDATE, arch="sm_90")
    answers = []
    for given in (CANDIDATE, made["build_id"]):
        answer = await server.call("profile_kernel", candidates=[given], problem=SCALE_ADD, arch="sm_90")
        found = answer.structured_content or {"profiles": getattr(answer.content[0], "text", "")}
        answers.append(found["profiles"])
    assert answers[0] == answers[1] and "BUILD" not in str(answers[1])
    file = (await compiled(server, source=SPILLS, arch="sm_90"))["build_id"]
    for tool, name in (("profile_kernel", "candidates"), ("sanitize_kernel", "candidate")):
        for given, words in ((file, "BAD_ARGUMENT: .*is of a .cu file"), ("0" * 16, "UNKNOWN_BUILD: ")):
            what = [given] if name == "candidates" else given
            assert re.match(words, await server.refusal(tool, **{name: what}, problem=SCALE_ADD))


async def test_the_compiler_stands_behind_walls(server: Server, tmp_path: Path) -> None:
    secret = tmp_path / "secret.h"
    secret.write_text("#error the secret")
    found = await compiled(server, source=f'#include "{secret}"')
    assert found["status"] == "build_error" and "the secret" not in json.dumps(found)


async def test_a_compiler_out_of_time_is_a_status_and_leaves_no_process(server: Server) -> None:
    before = descendants(os.getpid())
    found = await compiled(server, source=FOREVER, timeout_s=2)
    assert found["status"] == "timeout" and "longer than 2 s" in found["log"]
    await _gone(before)


async def test_a_cancelled_compilation_leaves_no_process(server: Server) -> None:
    before = descendants(os.getpid())
    compiling = asyncio.Event()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        if message and message.startswith("compiling"):
            compiling.set()

    call = asyncio.create_task(server.client.call_tool("compile_kernel", {"source": FOREVER}, progress_callback=note))
    await compiling.wait()
    async with asyncio.timeout(30):
        while not any(b"nvcc" in _words(pid) for pid in descendants(os.getpid()) - before):
            await asyncio.sleep(0.02)
    call.cancel()
    await _gone(before)
    assert (await compiled(server, source=SPILLS, arch="sm_80"))["status"] == "compiled"


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


async def _gone(before: set[int]) -> None:
    async with asyncio.timeout(10):
        while descendants(os.getpid()) - before:
            await asyncio.sleep(0.02)
