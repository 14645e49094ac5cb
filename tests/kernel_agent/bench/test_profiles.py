"""The profiler's answers in words, whatever rung of the ladder they come from."""

from dataclasses import replace

from kernel_agent.bench.profiles import (
    Compiled,
    Digest,
    HotLine,
    KernelReport,
    Launch,
    Loop,
    ProfileAnswer,
    SourceLine,
    profile,
)
from kernel_agent.run.types import HotSpot


def test_below_counters_the_profile_says_what_it_is_and_claims_no_bound() -> None:
    kernel = Compiled("k", registers_per_thread=64.0, stack_bytes=288.0, local_instructions=12.0)
    static = profile(ProfileAnswer("profiled", "", KernelReport(None, "static", None, (kernel,), ("nothing was run",))))
    assert (static.rung, static.bound, static.why) == ("static", "unknown", "nothing was run")
    assert static.metrics == ("k: 64 registers a thread, 12 local memory instructions, 288 bytes of stack",)
    loops = (Loop(34, 24, 0, 2, ("powf",)), Loop(5, 0, 1))
    processor = profile(
        ProfileAnswer("profiled", "", KernelReport(None, "static", None, (Compiled("run", loops=loops),)))
    )
    assert processor.metrics == (
        "run: an inner loop of 34 instructions: arithmetic 24 on vectors, 0 on single floats, "
        "2 moves of vectors to or from the stack, calls powf, "
        "an inner loop of 5 instructions: arithmetic 0 on vectors, 1 on single floats",
    )
    timeline = profile(
        ProfileAnswer("profiled", "", KernelReport(None, "timeline", Digest("k", "unknown", "times only", 5.5)))
    )
    assert timeline.bound == "unknown" and "5.5 us at the profiler's clock" in timeline.metrics


def test_a_candidate_that_could_not_be_profiled_says_why() -> None:
    failed = profile(ProfileAnswer("run_error", "Traceback\nRuntimeError: out of memory"))
    assert (failed.rung, failed.bound) == ("none", "unknown")
    assert failed.why == "not profiled (run error): RuntimeError: out of memory"
    assert profile(ProfileAnswer("no_kernel")).why.endswith("it gave no reason")


def test_of_several_launches_each_is_told_in_a_line() -> None:
    rows = (Launch("sums", "memory", 1200.5, 92.4), Launch("finish", "launch"))
    told = profile(
        ProfileAnswer("profiled", "", KernelReport("r", digest=Digest("sums", "memory", "DRAM is busy"), kernels=rows))
    )
    assert told.launches == ("sums, 1,200.5 us, 92 % of all launches, bound: memory", "finish, bound: launch")


def test_the_unit_that_binds_is_told_and_how_busy_the_tensor_cores_are() -> None:
    light = {"compute_pct": 71.0, "memory_pct": 73.0, "compute_unit": "tensor pipe", "memory_unit": "L2"}
    asked = Digest("gemm", "memory", "busiest: L2", 378.5, 1.412, speed_of_light=light, tensor_pct=68.2)
    told = profile(ProfileAnswer("profiled", "", KernelReport("r", digest=asked)))
    assert told.unit == "L2" and "tensor pipe 68 % of peak" in told.metrics
    assert "378.5 us at 1.41 GHz, the profiler's clock" in told.metrics
    assert (
        profile(ProfileAnswer("profiled", "", KernelReport("r", digest=replace(asked, bound="compute")))).unit
        == "tensor pipe"
    )
    assert (
        profile(ProfileAnswer("profiled", "", KernelReport("r", digest=replace(asked, bound="latency")))).unit is None
    )


def test_a_hot_line_of_a_header_is_told_with_the_line_that_it_was_inlined_into() -> None:
    caller = SourceLine("v = hsin(v);", "k.cu", 9, 17)
    hot = HotLine("", 90, 45.0, "cuda_fp16.hpp", 2801, stalls={"wait": 80.0}, called_from=caller)
    seen = Digest("k", "compute", "", hot_lines=(hot,))
    told = profile(ProfileAnswer("profiled", "", KernelReport("r", digest=seen)))
    assert told.hot_spots == ()
    assert told.hot_lines == ("45 % of samples at cuda_fp16.hpp:2801, inlined at line 17: v = hsin(v); [wait 80 %]",)


def test_a_hot_line_of_the_candidate_is_data_too() -> None:
    hot = HotLine("v = x[i];", 90, 45.0, "k.cu", 9, 17, stalls={"wait": 80.0})
    told = profile(ProfileAnswer("profiled", "", KernelReport("r", digest=Digest("k", "memory", "", hot_lines=(hot,)))))
    assert told.hot_spots == (HotSpot(17, 45.0, "wait 80 %"),)
