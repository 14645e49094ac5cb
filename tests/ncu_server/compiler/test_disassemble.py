"""disassemble with a real nvdisasm: one kernel's code, its mix, pages, resources."""

import json
import shutil
from typing import Any

import pytest

from ncu_server.compiler import sass
from ncu_server.errors import Refusal
from ncu_server.machine import toolkit
from tests.support.kernels import CANDIDATE, SPILLS, TENSOR
from tests.support.measuring import Server

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH"),
]
reads_sass = pytest.mark.skipif(
    toolkit.there_is("nvdisasm") is None, reason="nvdisasm is not here (pip install nvidia-cuda-nvdisasm)"
)
MOST_CHARACTERS = 8_000


async def shown(server: Server, **given: Any) -> dict[str, Any]:
    answer = await server.call("disassemble", **given)
    assert answer.structured_content is not None, answer.content
    assert len(json.dumps(answer.structured_content)) <= MOST_CHARACTERS
    return answer.structured_content


async def built(server: Server, source: str, arch: str = "sm_90") -> str:
    answer = await server.call("compile_kernel", source=source, arch=arch)
    assert answer.structured_content and answer.structured_content["status"] == "compiled", answer.content
    return str(answer.structured_content["build_id"])


@reads_sass
async def test_the_longest_kernel_is_shown_with_lines_of_its_source_and_its_spills(server: Server) -> None:
    found = await shown(server, build_id=await built(server, SPILLS))
    assert found["kernel"] == "spills" and found["others"][0].startswith("void axpy<float>")
    assert "// source.cu:" in found["text"] and "LDG.E" in found["text"] and "// spill" in found["text"]
    mix = found["mix"]
    assert mix["classes"]["local load"] > 50 and mix["classes"]["global load"] >= 64 and mix["spill_instructions"] > 100
    assert mix["global_load_bits"] == {"32": 64} and mix["opcodes"]["FFMA"] > 100
    assert mix["classes"]["barrier"] == 1 and mix["classes"]["shared store"] == 1


@reads_sass
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
async def test_tensor_instructions_wide_loads_and_special_functions_are_counted(server: Server, arch: str) -> None:
    mix = (await shown(server, build_id=await built(server, TENSOR, arch)))["mix"]
    assert mix["classes"]["tensor"] == 2 and mix["opcodes"]["HMMA"] == 2
    assert mix["global_load_bits"].get("128") == 1 and mix["classes"]["special function"] == 1
    assert "other" not in mix["classes"]


@reads_sass
async def test_pages_go_on_where_the_last_one_ended(server: Server) -> None:
    build = await built(server, SPILLS)
    first = await shown(server, build_id=build, line_count=200)
    pages, following = [first["text"]], first["next_line"]
    while following:
        page = await shown(server, build_id=build, first_line=following, line_count=200)
        pages.append(page["text"])
        following = page["next_line"]
    assert len("\n".join(pages).splitlines()) == first["lines"]
    whole = await server.client.read_resource(first["uri"])
    assert ".text.spills" in getattr(whole.contents[0], "text", "")


async def test_ptx_is_shown_without_a_disassembler(server: Server) -> None:
    found = await shown(server, build_id=await built(server, SPILLS), kernel="axpy", level="ptx")
    assert found["text"].startswith(".visible .entry _Z4axpyIfEvPKT_PS0_fi(") and found["next_line"] is None
    assert found["mix"]["classes"]["global load"] == 2 and found["mix"]["classes"]["global store"] == 1


@pytest.mark.long
@reads_sass
async def test_a_candidate_can_be_disassembled_at_once(server: Server) -> None:
    found = await shown(server, candidate=CANDIDATE, arch="sm_80")
    assert found["arch"] == "sm_80" and found["mix"]["classes"]["global load"] == 3
    again = await shown(server, build_id=found["build_id"], kernel="scale_add")
    assert again["text"] == found["text"]


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        ({"build_id": "0" * 16}, "UNKNOWN_BUILD", "call compile_kernel"),
        ({"build_id": "../../etc"}, "UNKNOWN_BUILD", "call compile_kernel"),
        ({}, "BAD_ARGUMENT", "give either"),
        ({"candidate": "this is no Python"}, "BAD_ARGUMENT", "does not compile (build_error)"),
    ],
)
async def test_what_cannot_be_shown_is_refused(server: Server, given: dict[str, Any], code: str, words: str) -> None:
    refusal = await server.refusal("disassemble", **given)
    assert refusal.startswith(f"{code}: ") and words in refusal


async def test_a_kernel_must_be_named_so_that_one_is_meant(server: Server) -> None:
    build = await built(server, SPILLS)
    for kernel, words in (
        ("nobody", "no kernel is named 'nobody'; there are: "),
        ("p", "several kernels are named 'p'"),
    ):
        assert words in await server.refusal("disassemble", build_id=build, kernel=kernel, level="ptx")
    assert "has lines 1 to" in await server.refusal("disassemble", build_id=build, first_line=99999, level="ptx")


async def test_a_server_without_nvdisasm_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolkit, "BESIDE", ())
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Refusal, match="pip install nvidia-cuda-nvdisasm"):
        toolkit.find("nvdisasm")


async def test_opcodes_of_hopper_and_blackwell_have_a_class() -> None:
    lines = [
        "HGMMA.64x64x16.F32.BF16 R24",
        "UTMALDG.2D [UR8]",
        "WARPGROUP.ARRIVE",
        "@!P0 SYNCS.ARRIVE R1",
        "UTCHMMA gdesc",
    ]
    assert sass.mix_of_sass(lines).classes == {"tensor": 2, "async copy": 1, "barrier": 2}
