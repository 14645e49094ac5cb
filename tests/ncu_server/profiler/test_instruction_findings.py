"""What executed instructions, and the balance between SMs, say of a launch that is otherwise like a recorded one."""

from collections.abc import Mapping

import pytest

from benchmarks.diseases import DISEASES
from ncu_server.profiler.digest import digest
from ncu_server.profiler.evidence import worst_by_opcode
from ncu_server.profiler.facts import CallerFact, KernelFacts, LineFact, OpcodeFact
from ncu_server.profiler.instruction_findings import NARROW_ACCESS
from ncu_server.profiler.metrics import PER_ISSUE, STALL
from ncu_server.wire.profiling import KernelDigest
from tests.support.nsight import launch

CALM = {"dram_pct": 20.0, "memory_pct": 40.0, "compute_pct": 30.0, "l1_pct": 20.0, "l2_pct": 10.0, "issue_pct": 30.0}
PLAIN = {"LDG.E": OpcodeFact(1000, 32000, 100), "FFMA": OpcodeFact(4000, 128000, 100), "EXIT": OpcodeFact(1000, 32000)}
CULPRIT = "bad();"
SOURCE = f"good();\n{CULPRIT}\n"


def seen(
    opcodes: Mapping[str, OpcodeFact],
    stalls: Mapping[str, float] | None = None,
    line_stalls: Mapping[str, int] | None = None,
    text: str = CULPRIT,
    **changed: float | None,
) -> KernelDigest:
    """The digest of a launch with these opcodes at line 2 beside PLAIN ones at line 1. `stalls` are shares of all
    waiting, the others are none; metrics go by our own names."""
    bad = LineFact(file="k.cu", line=2, text=text, samples=800, opcodes=dict(opcodes), stalls=dict(line_stalls or {}))
    bad.executed, bad.threads = (sum(column) for column in list(zip(*opcodes.values(), (0, 0, 0), strict=True))[:2])
    good = LineFact(file="k.cu", line=1, text="good();", samples=200, executed=6000, threads=192000, opcodes=PLAIN)
    facts = launch("healthy_sm_90", [bad, good], **({**CALM, **changed}))
    waits = {name: 0.0 for name in facts.metrics if name.startswith(STALL)}
    shares = {"long_scoreboard": 0.1} if stalls is None else stalls
    waits |= {f"{STALL}{reason}{PER_ISSUE}": share * 100 for reason, share in shares.items()}
    known = facts.metrics | waits | {"smsp__average_warp_latency_per_inst_issued.ratio": 100.0}
    everything = KernelFacts(name="k", metrics=known, lines=facts.lines, opcodes={**PLAIN, **opcodes})
    return digest(everything, source=f"good();\n{text}\n")


def blamed(found: KernelDigest) -> dict[str, int | None]:
    return {f.trouble: f.place.candidate_line if f.place else None for f in found.findings}


RED, SPIN = "REDG.E.ADD.F32.FTZ.RN.STRONG.GPU", "ATOMS.CAST.SPIN"
QUEUED = {"lg_throttle": 0.8}


def test_global_atomics_that_meet_at_few_addresses_are_blamed() -> None:
    opcodes = {RED: OpcodeFact(1000, 32000, 500)}
    assert blamed(seen(opcodes, QUEUED, red_sectors=1000.0)) == {"global_atomics": 2}
    hot = seen(opcodes, QUEUED, red_sectors=4000.0, l2_most_pct=90.0)
    assert blamed(hot) == {"global_atomics": 2} and "one slice of L2" in hot.findings[0].words


@pytest.mark.parametrize(
    ("executed", "sectors", "waiting"), [(1000, 4000.0, 0.8), (1000, 1000.0, 0.3), (10, 10.0, 0.8)]
)
def test_atomics_that_are_spread_cheap_or_few_are_no_trouble(executed: int, sectors: float, waiting: float) -> None:
    opcodes = {RED: OpcodeFact(executed, executed * 32, 500)}
    found = seen(opcodes, {"lg_throttle": waiting}, red_sectors=sectors, l2_most_pct=12.0)
    assert "global_atomics" not in blamed(found)


def test_shared_atomics_are_blamed_where_threads_wait_for_one_another() -> None:
    loops = {SPIN: OpcodeFact(8000, 100_000, 700)}
    assert blamed(seen(loops)) == {"shared_atomics": 2}
    turns = {"ATOMS.ADD": OpcodeFact(1000, 32000, 700)}
    assert blamed(seen(turns, shared_atomic_wavefronts=8000.0)) == {"shared_atomics": 2}
    assert not blamed(seen(turns, shared_atomic_wavefronts=1000.0, eligible_warps=2.0))


def test_waiting_for_operands_of_shared_atomics_is_not_their_fault() -> None:
    found = seen({SPIN: OpcodeFact(8000, 100_000, 700)}, line_stalls={"long_scoreboard": 780}, eligible_warps=2.0)
    assert not found.findings


DOUBLES = {
    "DADD": OpcodeFact(1000, 32000, 300),
    "F2F.F64.F32": OpcodeFact(1000, 32000, 300),
    "F2F.F32.F64": OpcodeFact(1000, 32000, 300),
}


def test_doubles_amid_floats_are_blamed_and_doubles_meant_as_such_are_not() -> None:
    assert blamed(seen(DOUBLES)) == {"double_arithmetic": 2}
    assert not blamed(seen({"DFMA": OpcodeFact(9000, 288_000, 900)}, eligible_warps=2.0))


THROUGHPUT = "sm__throughput.avg.pct_of_peak_sustained_elapsed"


def busy(pipe: str, opcodes: dict[str, OpcodeFact]) -> str:
    """The bound of a launch whose pipe is busy 91 %, with these opcodes."""
    name = f"sm__inst_executed_pipe_{pipe}.avg.pct_of_peak_sustained_elapsed"
    known = launch("healthy_sm_90", **CALM).metrics | {THROUGHPUT: 91.0, f"breakdown:{THROUGHPUT}": name, name: 91.0}
    return digest(KernelFacts(name="k", metrics=known, opcodes=opcodes)).bound


@pytest.mark.parametrize(
    ("pipe", "needed", "not_needed"),
    [
        ("fp64", {"DFMA": OpcodeFact(9000)}, DOUBLES),
        (
            "fma",
            {"FFMA": OpcodeFact(9000), "IMAD": OpcodeFact(100)},
            {"FFMA": OpcodeFact(100), "IMAD": OpcodeFact(900)},
        ),
        ("xu", {"MUFU.EX2": OpcodeFact(90)}, {"MUFU.EX2": OpcodeFact(10), "F2I.TRUNC.NTZ": OpcodeFact(90)}),
    ],
)
def test_near_the_limit_is_said_of_a_unit_whose_work_the_problem_needs(
    pipe: str, needed: dict[str, OpcodeFact], not_needed: dict[str, OpcodeFact]
) -> None:
    assert (busy(pipe, needed), busy(pipe, not_needed)) == ("near the limit", "compute")


BYTES = {"LDG.E.U8": OpcodeFact(3000, 96000, 600), "STG.E.U8": OpcodeFact(3000, 96000, 100)}


def test_narrow_accesses_are_blamed_unless_dram_is_busy_anyway() -> None:
    waiting = {"long_scoreboard": 0.9}
    assert blamed(seen(BYTES, waiting)) == {"narrow_access": 2}
    assert not blamed(seen(BYTES, waiting, dram_pct=90.0, memory_pct=90.0))
    assert not blamed(seen({"LDG.E.128": OpcodeFact(9000, 288_000, 600)}, waiting, eligible_warps=2.0))


@pytest.mark.parametrize(("opcode", "count"), [("I2F.RP", 200), ("I2F.U32.RP", 200), ("I2F.U64.RP", 60)])
def test_integer_division_is_blamed_by_how_it_is_compiled(opcode: str, count: int) -> None:
    divided = {opcode: OpcodeFact(count * 2, count * 64, 300)}
    assert blamed(seen(divided, text="i / n;  // why")) == {"integer_division": 2}
    assert blamed(seen(divided, text="long i;  // 1/2")) == {"integer_division": None}, "the compiler's line is wrong"
    assert not blamed(seen({opcode: OpcodeFact(count // 20, count, 300)}, eligible_warps=2.0))
    assert not blamed(seen({"I2F.S32": OpcodeFact(count * 2, count * 64, 300)}, eligible_warps=2.0))


def test_waiting_for_instructions_is_blamed_on_the_line_that_waits() -> None:
    opcodes, missed = {"FFMA": OpcodeFact(9000, 288_000, 800)}, {"no_instructions": 400}
    assert blamed(seen(opcodes, {"no_instruction": 0.4}, missed)) == {"instruction_cache": 2}
    assert not blamed(seen(opcodes, {"no_instruction": 0.05}, missed, eligible_warps=2.0))


def test_loads_of_the_same_bytes_are_blamed_where_a_cache_is_busy_with_them() -> None:
    opcodes = {"LDG.E": OpcodeFact(9000, 288_000, 800)}
    again = {"load_sectors": 1e7, "dram_read": 1e7, "l1_pct": 85.0}
    assert "redundant_loads" in blamed(seen(opcodes, **again))
    assert "redundant_loads" not in blamed(seen(opcodes, **(again | {"l1_pct": 30.0})))
    assert "redundant_loads" not in blamed(seen(opcodes, **(again | {"dram_read": 2e8})))


def test_uneven_work_between_sms_is_told_where_no_tail_explains_it() -> None:
    uneven = {"sm_cycles": 4e4, "sm_cycles_most": 1e5, "waves": 1.0}
    assert "uneven_sms" in blamed(seen(PLAIN, **uneven))
    assert "uneven_sms" not in blamed(seen(PLAIN, **(uneven | {"waves": 1.05})))
    assert "uneven_sms" not in blamed(seen(PLAIN, **(uneven | {"sm_cycles": 9e4})))
    assert "uneven_sms" not in blamed(seen(PLAIN, **(uneven | {"sm_cycles": 4e3, "sm_cycles_most": 1e4})))


def test_few_eligible_warps_are_told_where_nothing_else_is() -> None:
    full = {"occupancy_pct": 95.0, "eligible_warps": 0.2, "issue_pct": 15.0}
    found = seen(PLAIN, {"long_scoreboard": 0.9}, **full)
    assert blamed(found) == {"few_eligible": 2} and "global or local memory" in found.findings[0].words
    assert blamed(seen(DOUBLES, {"long_scoreboard": 0.9}, **full)) == {"double_arithmetic": 2}
    assert not blamed(seen(PLAIN, **(full | {"memory_pct": 85.0, "dram_pct": 85.0})))


@pytest.mark.parametrize(
    ("which", "changed", "caused"),
    [("healthy_sm_90", {"active_lanes": 6.0}, "lanes_lost"), ("barriers_sm_86", {}, "barrier_waits")],
)
def test_divergence_and_barriers_are_blamed_on_the_line_that_causes_them(
    which: str, changed: dict[str, float], caused: str
) -> None:
    slow = LineFact(file="k.cu", line=3, text="victim();", samples=900, executed=9000, stalls={"barrier": 800})
    culprit = LineFact.model_validate({"file": "k.cu", "line": 2, "text": CULPRIT, "samples": 9, caused: 50})
    found = digest(launch(which, [slow, culprit], **changed), source=SOURCE)
    assert blamed(found)["divergence" if changed else "barriers"] == 2


def test_of_lines_alike_the_first_of_the_file_is_blamed() -> None:
    store = LineFact(file="k.cu", line=3, text="store();", samples=90, opcodes={"STG.E.U8": OpcodeFact(10, 320, 90)})
    load = LineFact(file="k.cu", line=2, text=CULPRIT, samples=9, opcodes={"LDG.E.U8": OpcodeFact(10, 320, 9)})
    assert worst_by_opcode([store, load], NARROW_ACCESS) == load


def test_a_store_that_touches_more_sectors_than_a_load_is_what_is_told() -> None:
    found = digest(launch("uncoalesced_sm_90", load_sectors=4.0, load_requests=1.0, store_sectors=64, store_requests=2))
    assert "a store touches 32.0 sectors" in next(f.words for f in found.findings if f.trouble == "uncoalesced")


def test_a_line_of_a_header_is_blamed_at_the_line_that_it_was_inlined_into() -> None:
    caller = CallerFact(file="/b/k.cu", line=2, text=CULPRIT)
    header = LineFact(file="/cuda/atomics.hpp", line=84, text="", called_from=caller, samples=9, global_sectors=90)
    found = digest(launch("uncoalesced_sm_90", [header]), source=SOURCE)
    assert blamed(found)["uncoalesced"] == 2
    (hot,) = found.hot_lines
    assert (hot.file, hot.line, hot.candidate_line) == ("atomics.hpp", 84, None)
    assert hot.called_from and (hot.called_from.file, hot.called_from.candidate_line) == ("k.cu", 2)


def test_each_disease_with_a_line_marks_it_in_its_kernel() -> None:
    lineless = {"healthy", "spills", "low_occupancy", "tensor_idle", "small_grid", "tail"}
    assert {d.name for d in DISEASES if d.line is None} == lineless | {"healthy_double", "healthy_reduction"}
