"""The lower rungs: occupancy by arithmetic against ncu's word, what cuobjdump prints, what a timeline holds."""

import json

import pytest

from ncu_server.compiler.occupancy import own_shared, possible_pct
from ncu_server.compiler.sass import mix_of_sass
from ncu_server.profiler.fallbacks import launches_in, timeline_report
from ncu_server.profiler.metrics import value
from ncu_server.profiler.static_cuda import mixes_in, static_kernel, usage_in
from tests.support.nsight import LAUNCHES

USAGE = """
Resource usage:
 Common:
  GLOBAL:0
 Function _Z4fastPf:
  REG:32 STACK:0 SHARED:1152 LOCAL:0 CONSTANT[0]:548 TEXTURE:0 SURFACE:0 SAMPLER:0
 Function spilled:
  REG:64 STACK:288 SHARED:0 LOCAL:16 CONSTANT[0]:548 TEXTURE:0 SURFACE:0 SAMPLER:0
"""
SASS = """
		Function : spilled
	.headerflags	@"EF_CUDA_SM90"
        /*0000*/                   LDC R1, c[0x0][0x28] ;                     /* 0x00000a00ff017b82 */
                                                                              /* 0x000fe20000000800 */
        /*0010*/              @!P0 STL.64 [R1], R2 ;                          /* 0x0 */
        /*0020*/                   HGMMA.64x128x16.F32.BF16 R24, gdesc[UR4] ; /* 0x0 */
        /*0030*/              @UP1 UIADD3 UR4, UR4, 0x1, URZ ;                /* 0x0 */
"""


@pytest.mark.parametrize("which", LAUNCHES)
def test_the_arithmetic_agrees_with_ncu(which: str) -> None:
    known = LAUNCHES[which]
    says = value(known, "possible_occupancy_pct")
    if says is None:
        pytest.skip("the section was not collected")
    major, minor = (known[f"device__attribute_compute_capability_{part}"] for part in ("major", "minor"))
    registers, threads, static, dynamic = (
        value(known, row) or 0 for row in ("registers", "threads", "static_shared", "dynamic_shared")
    )
    own = possible_pct(f"sm_{major:.0f}{minor:.0f}", int(registers), int(threads), int(static + dynamic))
    assert own == pytest.approx(says, abs=0.1)


def test_limits_at_the_edges() -> None:
    assert possible_pct("sm_90a", 255, 1024, 0) == 0
    assert possible_pct("sm_90", 16, 1024, 0) == 100
    assert possible_pct("sm_90", 32, 32, 227 << 10) == pytest.approx(100 / 64)
    assert possible_pct("sm_7", 32, 32, 0) is None
    assert own_shared("sm_90a", 1152) == 128 and own_shared("sm_80", 1152) == 1152


def test_what_the_compiler_made_is_read_a_function_at_a_time() -> None:
    assert dict(usage_in(USAGE)) == {"_Z4fastPf": (32, 0, 1152, 0), "spilled": (64, 288, 0, 16)}
    assert dict(mixes_in(SASS)) == {"spilled": {"LDC": 1, "STL": 1, "HGMMA": 1, "UIADD3": 1}}


TENSOR = [
    "HMMA",
    "IMMA",
    "DMMA",
    "BMMA",
    "QMMA",
    "OMMA",
    "HGMMA",
    "IGMMA",
    "BGMMA",
    "QGMMA",
    "UTCHMMA",
    "UTCIMMA",
    "UTCQMMA",
    "UTCOMMA",
]


@pytest.mark.parametrize("opcode", [*TENSOR, "WARPGROUP", "STL", "LDL", "FFMA"])
def test_both_listings_of_sass_count_the_same_tensor_instructions(opcode: str) -> None:
    """nvdisasm's, which disassemble shows, and cuobjdump's, which the static rung reads."""
    wanted = float(opcode in TENSOR), float(opcode in ("STL", "LDL"))
    classes = mix_of_sass([f"@!P0 {opcode}.64 R1, R2"]).classes
    assert (classes.get("tensor", 0), sum(n for name, n in classes.items() if name.startswith("local"))) == wanted
    listing = SASS.replace("STL.64", "MOV").replace("HGMMA.64x128x16", f"{opcode}.64")
    kernel = static_kernel("spilled", (32, 0, 0, 0), dict(mixes_in(listing))["spilled"], "sm_100")
    assert (kernel.tensor_instructions, kernel.local_instructions) == wanted


def test_a_timeline_tells_times_and_launches_and_claims_no_more() -> None:
    args = {"grid": [8, 1, 1], "block": [32, 8, 1], "registers per thread": 40, "shared memory": 512}
    events = [
        {"ph": "X", "cat": "kernel", "name": "a", "ts": 0, "dur": 5.5, "args": args},
        {"ph": "X", "cat": "cpu_op", "name": "aten::add", "dur": 50},
        {"ph": "X", "cat": "kernel", "name": "b", "ts": 9, "dur": 1.5, "args": {}},
        {"cat": "kernel", "name": "odd", "dur": "long"},
    ]
    found = timeline_report(launches_in(json.dumps({"traceEvents": events})))
    assert found.rung == "timeline" and found.digest and found.digest.bound == "unknown"
    assert [(row.name, row.share_pct) for row in found.kernels] == [("a", 78.6), ("b", 21.4)]
    assert (found.digest.occupancy.threads_per_block, found.digest.occupancy.blocks) == (256, 8)
    assert found.digest.confidence == "low" and found.digest.missing
    for nonsense in ("", "[]", "{}", '{"traceEvents": 3}', "[" * 100_000):
        assert launches_in(nonsense) == []
