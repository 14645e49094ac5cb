"""The counters that a digest reads: our name, ncu's section that collects it, and the names that it goes by.

The first name that a report has counts. Names move with the architecture and with ncu's version: those here were seen
in reports of sm_75, sm_80, sm_86, sm_90, sm_100 and sm_120, written by ncu 2022.4 to 2025.4.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

ELAPSED, ACTIVE = "pct_of_peak_sustained_elapsed", "pct_of_peak_sustained_active"


class Metric(NamedTuple):
    """One number: ncu's section that collects it, and the counters that it is read off.

    With `what` it is and its `unit` it stands in comparisons. `asked`: a digest names it where it is missing. `shown`:
    a digest shows it among its `counters`, for what has no field there, and so does a prompt.
    """

    section: str
    counters: tuple[str, ...]
    what: str = ""
    unit: str = ""
    asked: bool = False
    shown: bool = False


ROWS: dict[str, Metric] = {
    "duration": Metric("SpeedOfLight", ("gpu__time_duration.sum", "gpu__time_duration.avg"), asked=True),
    "clock": Metric(
        "SpeedOfLight", ("gpc__cycles_elapsed.avg.per_second", "sm__cycles_elapsed.avg.per_second"), asked=True
    ),
    "memory_clock": Metric("SpeedOfLight", ("dram__cycles_elapsed.avg.per_second",)),
    "compute_pct": Metric(
        "SpeedOfLight", (f"sm__throughput.avg.{ELAPSED}",), "compute throughput", "% of peak", asked=True
    ),
    "memory_pct": Metric(
        "SpeedOfLight", (f"gpu__compute_memory_throughput.avg.{ELAPSED}",), "memory throughput", "% of peak", asked=True
    ),
    "dram_pct": Metric(
        "SpeedOfLight",
        (f"gpu__dram_throughput.avg.{ELAPSED}", f"dram__throughput.avg.{ELAPSED}"),
        "DRAM throughput",
        "% of peak",
        asked=True,
    ),
    "l2_pct": Metric("SpeedOfLight", (f"lts__throughput.avg.{ELAPSED}",)),
    "l1_pct": Metric("SpeedOfLight", (f"l1tex__throughput.avg.{ACTIVE}", f"l1tex__throughput.avg.{ELAPSED}")),
    "dram_bytes_per_second": Metric("MemoryWorkloadAnalysis", ("dram__bytes.sum.per_second",)),
    "dram_read": Metric(
        "MemoryWorkloadAnalysis_Tables",
        ("dram__bytes_read.sum", "dram__bytes_op_read.sum"),
        "bytes read from DRAM",
        "bytes",
        asked=True,
    ),
    "dram_written": Metric(
        "MemoryWorkloadAnalysis_Tables",
        ("dram__bytes_write.sum", "dram__bytes_op_write.sum"),
        "bytes written to DRAM",
        "bytes",
    ),
    "l1_hit_pct": Metric("MemoryWorkloadAnalysis", ("l1tex__t_sector_hit_rate.pct",), "L1 hit rate", "%"),
    "l2_hit_pct": Metric("MemoryWorkloadAnalysis", ("lts__t_sector_hit_rate.pct",), "L2 hit rate", "%", asked=True),
    "load_sectors": Metric(
        "MemoryWorkloadAnalysis_Tables", ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",), asked=True
    ),
    "load_requests": Metric("MemoryWorkloadAnalysis_Tables", ("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",)),
    "store_sectors": Metric("MemoryWorkloadAnalysis_Tables", ("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",)),
    "store_requests": Metric("MemoryWorkloadAnalysis_Tables", ("l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",)),
    "global_sectors": Metric(
        "SourceCounters", ("memory_l2_theoretical_sectors_global",), "sectors of global accesses", "sectors"
    ),
    "global_ideal": Metric("SourceCounters", ("memory_l2_theoretical_sectors_global_ideal",)),
    "red_sectors": Metric("MemoryWorkloadAnalysis_Tables", ("l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum",)),
    "atom_sectors": Metric("MemoryWorkloadAnalysis_Tables", ("l1tex__t_sectors_pipe_lsu_mem_global_op_atom.sum",)),
    "l2_most_pct": Metric("SpeedOfLight", (f"lts__throughput.max.{ELAPSED}",)),
    "shared_atomic_wavefronts": Metric(
        "MemoryWorkloadAnalysis_Tables", ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom.sum",)
    ),
    "shared_wavefronts": Metric(
        "SourceCounters", ("memory_l1_wavefronts_shared",), "turns of shared memory", "wavefronts"
    ),
    "shared_ideal": Metric("SourceCounters", ("memory_l1_wavefronts_shared_ideal",)),
    "bank_conflicts": Metric(
        "MemoryWorkloadAnalysis_Tables",
        ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",),
        "bank conflicts",
        "wavefronts",
        asked=True,
    ),
    "bank_wavefronts": Metric("MemoryWorkloadAnalysis_Tables", ("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",)),
    "local_loads": Metric(
        "SourceCounters",
        (
            "smsp__sass_inst_executed_op_local_ld.sum",
            "sass__inst_executed_local_loads",
            "l1tex__t_requests_pipe_lsu_mem_local_op_ld.sum",
        ),
        "loads from local memory",
        "instructions",
        asked=True,
    ),
    "local_stores": Metric(
        "SourceCounters",
        (
            "smsp__sass_inst_executed_op_local_st.sum",
            "sass__inst_executed_local_stores",
            "l1tex__t_requests_pipe_lsu_mem_local_op_st.sum",
        ),
        "stores to local memory",
        "instructions",
    ),
    "spill_instructions": Metric("SourceCounters", ("sass__inst_executed_register_spilling",)),
    "instructions": Metric(
        "SourceCounters", ("inst_executed", "smsp__inst_executed.sum"), "instructions of warps", "instructions"
    ),
    "occupancy_pct": Metric("Occupancy", (f"sm__warps_active.avg.{ACTIVE}",), "achieved occupancy", "%", asked=True),
    "possible_occupancy_pct": Metric(
        "Occupancy", ("sm__maximum_warps_per_active_cycle_pct",), "possible occupancy", "%"
    ),
    "registers": Metric(
        "LaunchStats", ("launch__registers_per_thread",), "registers a thread", "registers", asked=True
    ),
    "static_shared": Metric(
        "LaunchStats", ("launch__shared_mem_per_block_static",), "static shared memory a block", "bytes"
    ),
    "dynamic_shared": Metric(
        "LaunchStats", ("launch__shared_mem_per_block_dynamic",), "dynamic shared memory a block", "bytes"
    ),
    "blocks": Metric("LaunchStats", ("launch__grid_size",), "blocks", "blocks"),
    "threads": Metric("LaunchStats", ("launch__block_size",), "threads a block", "threads"),
    "waves": Metric("LaunchStats", ("launch__waves_per_multiprocessor",)),
    "sms": Metric("LaunchStats", ("launch__sm_count", "device__attribute_multiprocessor_count")),
    "sm_cycles": Metric("SpeedOfLight", ("sm__cycles_active.avg",)),
    "sm_cycles_most": Metric("SpeedOfLight", ("sm__cycles_active.max",)),
    "issue_pct": Metric("SchedulerStats", (f"smsp__issue_active.avg.{ACTIVE}",), "issue slots used", "%", asked=True),
    "eligible_warps": Metric(
        "SchedulerStats", ("smsp__warps_eligible.avg.per_cycle_active",), "warps ready to issue", "warps"
    ),
    "latency": Metric("WarpStateStats", ("smsp__average_warp_latency_per_inst_issued.ratio",), asked=True),
    "active_lanes": Metric(
        "WarpStateStats",
        ("smsp__thread_inst_executed_per_inst_executed.ratio",),
        "threads of a warp at work",
        "threads",
    ),
    "ipc": Metric("ComputeWorkloadAnalysis", ("sm__inst_executed.avg.per_cycle_active",)),
    "tensor_pct": Metric(
        "ComputeWorkloadAnalysis",
        (
            f"sm__pipe_tensor_cycles_active.avg.{ACTIVE}",
            f"sm__inst_executed_pipe_tensor.avg.{ACTIVE}",
            f"sm__pipe_tensor_cycles_active.avg.{ELAPSED}",
        ),
        "tensor pipe",
        "% of peak",
        asked=True,
    ),
    "fma_pct": Metric(
        "ComputeWorkloadAnalysis",
        (f"sm__pipe_fma_cycles_active.avg.{ACTIVE}", f"sm__inst_executed_pipe_fma.avg.{ACTIVE}"),
        "FMA pipe",
        "% of peak",
    ),
    "samples": Metric("SourceCounters", ("smsp__pcsamp_sample_count",), asked=True),
    "passes": Metric("", ("profiler__replayer_passes",)),
}
LIMITS = ("registers", "shared_mem", "warps", "blocks", "barriers")
"""What may limit the blocks of an SM: `launch__occupancy_limit_` and this."""
LIMIT = "launch__occupancy_limit_"

STALL, PER_ISSUE = "smsp__average_warps_issue_stalled_", "_per_issue_active.ratio"
WAITING_FOR: dict[str, str] = {
    "long_scoreboard": "data from global or local memory, or L2",
    "short_scoreboard": "shared memory or special functions",
    "barrier": "other warps at a barrier",
    "wait": "a fixed latency of its previous instruction",
    "mio_throttle": "the queue of shared memory and special functions, which is full",
    "lg_throttle": "the queue of global and local memory, which is full",
    "tex_throttle": "the queue of the texture unit, which is full",
    "math_pipe_throttle": "a busy arithmetic pipe",
    "gmma": "an asynchronous matrix instruction (wgmma)",
    "warpgroup_arrive": "the other warps of its warpgroup",
    "membar": "a memory fence",
    "branch_resolving": "a branch target",
    "no_instruction": "instructions from memory",
    "no_instructions": "instructions from memory",
    "dispatch_stall": "the dispatcher",
    "drain": "its stores, at its end",
    "imc_miss": "a constant from memory",
    "sleeping": "its own sleep",
    "not_selected": "its turn (others were issued)",
    "misc": "something else",
}
BUSY = ("selected",)
"""Reasons that are none: the warp issued."""

# Single precision operations, by the number that an instruction counts for.
FLOP_RATES = {
    f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum.per_cycle_elapsed": weight
    for op, weight in (("fadd", 1), ("fmul", 1), ("ffma", 2))
}
FFMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed"
FLOP_CLOCK = "smsp__cycles_elapsed.avg.per_second"
FLOP_PEAK = "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained"
FLOP_PEAK_CLOCK = "sm__cycles_elapsed.avg.per_second"
BYTE_PEAK, BYTE_PEAK_CLOCK = "dram__bytes.sum.peak_sustained", "dram__cycles_elapsed.avg.per_second"

ARITHMETIC = ("tensor pipe", "tensor and FP64 pipes", "FMA pipe", "FP64 pipe", "special function pipe")
"""The units that a kernel cannot do without work for: busy, they are the limit."""

OWN_WORK: dict[str, tuple[re.Pattern[str], re.Pattern[str]]] = {
    "FMA pipe": (re.compile(r"(F(FMA|ADD|MUL)|H(FMA|ADD|MUL)).*"), re.compile(r"IMAD.*")),
    "special function pipe": (re.compile(r"MUFU.*"), re.compile(r"(F2F|F2I|I2F|FRND)\..*")),
}
"""Of units that do other work as well: the opcodes that a problem asks for, and those beside them (index arithmetic,
conversions)."""

UNITS: dict[str, str] = {
    "dram": "DRAM",
    "fbpa": "DRAM",
    "lts": "L2",
    "ltc": "L2",
    "l1tex": "L1",
    "idc": "constant cache",
    "sm__pipe_tensor": "tensor pipe",
    "sm__pipe_shared": "tensor and FP64 pipes",
    "sm__inst_executed_pipe_tensor": "tensor pipe",
    "sm__pipe_fma": "FMA pipe",
    "sm__inst_executed_pipe_fma": "FMA pipe",
    "sm__pipe_alu": "ALU pipe",
    "sm__inst_executed_pipe_alu": "ALU pipe",
    "sm__pipe_fp64": "FP64 pipe",
    "sm__inst_executed_pipe_fp64": "FP64 pipe",
    "sm__inst_executed_pipe_xu": "special function pipe",
    "sm__pipe_xu": "special function pipe",
    "sm__inst_executed_pipe_lsu": "load/store pipe",
    "l1tex__lsuin": "load/store pipe",
    "l1tex__data_bank": "shared memory and L1 banks",
    "l1tex__data_pipe_lsu": "shared memory and L1 data",
    "sm__mio": "shared memory queue",
    "sm__inst_executed": "instruction issue",
    "sm__inst_issued": "instruction issue",
    "sm__issue_active": "instruction issue",
}
"""What a part of a throughput is called, by the longest beginning of its counter's name."""

Metrics = Mapping[str, float | str]


def number(metrics: Metrics, name: str) -> float | None:
    """The value under ncu's name, where it is a number."""
    value = metrics.get(name)
    return float(value) if isinstance(value, int | float) else None


def value(metrics: Metrics, row: str) -> float | None:
    """The value of a row of ours under the first of its names that the report has."""
    return next((v for name in ROWS[row].counters if (v := number(metrics, name)) is not None), None)


def unit_called(name: str) -> str:
    """What the unit that a counter belongs to is called; the counter's own name where that is not known."""
    best = max((begin for begin in UNITS if name.startswith(begin)), key=len, default=None)
    return UNITS[best] if best else name.split(".")[0]


def busiest(metrics: Metrics, throughput: str) -> str | None:
    """The unit behind a throughput: the largest of the parts that the report breaks it down into."""
    parts = str(metrics.get(f"breakdown:{throughput}", "")).split(",")
    shares = {name: share for name in parts if (share := number(metrics, name.strip())) is not None}
    return unit_called(max(shares, key=lambda name: shares[name])) if shares else None
