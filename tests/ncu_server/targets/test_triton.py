"""The triton target: with a device its verdicts (`-m gpu`), without one what its build leaves and its run may use."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ncu_server.compiler.builds import Build, BuildFault, Builds
from ncu_server.machine.device import Device
from ncu_server.machine.lease import Lease
from ncu_server.rules import lint, triton_cache
from ncu_server.rules.authorship import Ownership
from ncu_server.rules.triton_cache import Jitted
from ncu_server.sandbox.child import ChildDied, ChildFault
from ncu_server.sandbox.forkserver import ForkServer
from ncu_server.sandbox.shared_memory import Shared, WarmUp
from ncu_server.targets import TARGETS, Probe, triton
from ncu_server.worker.verbs import Draw, OpenCandidate, OpenReference, Practise
from tests.support.edits import edit
from tests.support.measuring import SCALE_ADD, Server
from tests.support.needs import NO_TRITON, needs_triton

KERNEL = """
import torch, torch.nn as nn, triton, triton.language as tl

@triton.jit
def scale_add(x, y, b, o, s, n, c, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = at < n
    value = tl.load(x + at, mask=live) * s + tl.load(y + at, mask=live) + tl.load(b + at % c, mask=live)
    tl.store(o + at, value, mask=live)

class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.bias = nn.Parameter(torch.randn(256))

    def forward(self, x, y):
        out = torch.empty_like(x)
        n = x.numel()
        scale_add[(triton.cdiv(n, 256),)](x, y, self.bias, out, self.scale, n, 256, BLOCK=256)
        return out
"""
CONFIGS = "[triton.Config({'BLOCK': b}, num_warps=w) for b in (256, 1024) for w in (2, 4)]"
TUNED = edit(
    edit(
        edit(KERNEL, "@triton.jit", f"@triton.autotune(configs={CONFIGS}, key=['n'])\n@triton.jit"),
        "(triton.cdiv(n, 256),)",
        "lambda meta: (triton.cdiv(n, meta['BLOCK']),)",
    ),
    ", 256, BLOCK=256)",
    ", 256)",
)


async def evaluate(server: Server, candidate: str, **more: Any) -> dict[str, Any]:
    given = {"candidate": candidate, "problem": SCALE_ADD, "target": "triton", "timeout_s": 240}
    answer = await server.call("evaluate_kernel", **given | more)
    assert not answer.is_error, answer.content
    assert answer.structured_content is not None
    return answer.structured_content


@pytest.mark.gpu
@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("candidate", [KERNEL, TUNED], ids=["plain", "autotuned"])
async def test_an_honest_kernel_passes_under_the_strict_rules(server: Server, candidate: str) -> None:
    result = await evaluate(server, candidate, rules="strict")
    assert result["status"] == "passed", result["log"]
    assert result["provenance"]["label"] == "custom"


@pytest.mark.gpu
@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize(
    ("changes", "expected", "words"),
    [
        ({"triton.cdiv(n, 256)": "triton.cdiv(n, 256) // 2"}, "wrong", "output 0"),
        ({"return out": "return x * self.scale + y + self.bias"}, "rejected", "library code does"),
        ({"(triton.cdiv(n, 256),)": "(1,)", "return out": "return x * self.scale + y + self.bias"}, "rejected", ""),
        ({" * s +": " * missing +"}, "build_error", "missing is not defined"),
        ({"tl.load(x + at, mask=live) * s": "tl.dot(at, at)"}, "build_error", "CompilationError"),
        ({"BLOCK=256)": "BLOCK=100)"}, "build_error", "power of 2"),
        ({"return out": "return out.missing"}, "run_error", "has no attribute 'missing'"),
        ({"tl.store(o + at,": "tl.store(o + at + (1 << 40),"}, "run_error", ""),
        (
            {"constexpr):": "constexpr, SALT: tl.constexpr):", "BLOCK=256)": "BLOCK=256, SALT=float(x[0, 0]))"},
            "run_error",
            "has to compile",
        ),
    ],
    ids=["half a grid", "unused", "decoy", "name", "type", "range", "attribute", "address", "by value"],
)
async def test_each_fault_has_its_status(server: Server, changes: dict[str, str], expected: str, words: str) -> None:
    source = KERNEL
    for old, new in changes.items():
        source = edit(source, old, new)
    result = await evaluate(server, source, rules="strict")
    assert (result["status"], words in result["log"]) == (expected, True), result["log"]


LAST_IS_BEST = """
import itertools
tried = itertools.count()

def last_is_best(call, quantiles):
    call()
    return [-float(next(tried))] * 3
"""


@pytest.mark.gpu
@pytest.mark.asyncio(loop_scope="session")
async def test_what_others_wrote_while_tuning_is_not_the_chosen_one_s_output(
    server: Server,
) -> None:
    source = edit(edit(TUNED, "for b in (256, 1024)", "for b in (1024, 256)"), "meta['BLOCK'])", "1024)")
    source = LAST_IS_BEST + edit(source, "key=['n'])", "key=['n'], do_bench=last_is_best)")
    assert (await evaluate(server, source))["status"] == "wrong"


@pytest.mark.gpu
@pytest.mark.asyncio(loop_scope="session")
async def test_what_torch_compile_writes_is_not_the_candidates(server: Server) -> None:
    source = edit(
        KERNEL, "class ModelNew", "@torch.compile\ndef fused(x, s, y, b):\n    return x * s + y + b\n\nclass ModelNew"
    )
    source = edit(
        edit(source, "return out", "return fused(x, self.scale, y, self.bias)"), "(triton.cdiv(n, 256),)", "(1,)"
    )
    assert (await evaluate(server, source, rules="strict"))["status"] in ("rejected", "run_error")


SPY = """
        import os, subprocess
        for act in (lambda: subprocess.run(["true"]), lambda: open(os.environ["TRITON_CACHE_DIR"] + "/left", "w")):
            try:
                if "candidate-" in os.getcwd():
                    act()
                    raise AssertionError("a wall is down")
            except OSError:
                pass
        return out"""


@pytest.mark.gpu
@pytest.mark.asyncio(loop_scope="session")
async def test_the_run_starts_no_program_behind_the_walls(server: Server) -> None:
    result = await evaluate(server, edit(TUNED, "\n        return out", SPY))
    assert result["status"] == "passed", result["log"]
    assert "system calls" in result["provenance"]["walls"]


@pytest.mark.skipif(TARGETS["triton"].probe().available, reason="the target is there")
@pytest.mark.asyncio(loop_scope="session")
async def test_where_it_is_missing_the_refusal_says_what_to_do(server: Server) -> None:
    said = await server.refusal("evaluate_kernel", candidate=KERNEL, problem=SCALE_ADD, target="triton")
    assert said.partition(":")[0] in ("NO_DEVICE", "NO_COMPILER")
    assert "target 'triton' is not available here" in said
    shown = (await server.call("check_environment")).structured_content
    assert shown is not None
    (row,) = [t for t in shown["targets"] if t["name"] == "triton"]
    assert row["reason"]
    assert row["fix"]


def test_the_guard_takes_triton_for_a_kernel() -> None:
    for source in (
        KERNEL,
        TUNED,
        edit(KERNEL, "triton, triton.language as tl", "triton\nfrom triton import language as tl"),
    ):
        reading = lint.read(source)
        assert (reading.rejected, reading.syntax, reading.warnings) == (None, None, ())


def test_kernels_are_owned_by_where_triton_found_them() -> None:
    own = Ownership("", jitted=Jitted(frozenset({"gemm_mine", "triton_poi_fused_0"}), frozenset({"rms_norm_forward"})))
    assert own.owns("gemm_mine")
    assert own.owns("triton_poi_fused_0")
    assert not own.owns("triton_poi_fused_1"), "Inductor's"
    assert not own.owns("rms_norm_forward"), "of an imported library"
    assert not own.owns("void at::native::vectorized_elementwise_kernel<4>(int)")
    named_like_a_vendor = Ownership("", jitted=Jitted(frozenset({"nvjet_hsh_128x256"})))
    assert not named_like_a_vendor.owns("nvjet_hsh_128x256")


# Stands in for the device, before no_gpu.c does for libcuda.so.1: compiling, loading and launching are Triton's own.
NO_DEVICE = """
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.driver import CudaLauncher, CudaUtils
from triton.runtime.driver import driver

class Absent:
    launcher_cls = CudaLauncher

    def __init__(self):
        self.utils = CudaUtils()

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, _):
        return 0

    def get_benchmarker(self):
        return lambda call, quantiles: [call() or 1.0] * 3

driver.set_active(Absent())
"""
LAUNCHED = """
        import ctypes
        assert ctypes.c_int.in_dll(ctypes.CDLL("libcuda.so.1"), "launched").value, "nothing was launched"
        return out"""


class Bench:
    """A fork server of the triton target that believes in an sm_90; its children build and run a candidate."""

    def __init__(self, folder: Path) -> None:
        library = folder / "libcuda.so.1"
        build = ["gcc", "-shared", "-fPIC", str(Path(__file__).parent / "no_gpu.c"), "-o", str(library)]
        subprocess.run([*build, "-Wl,-soname,libcuda.so.1"], check=True)
        probe = Probe(True, "none", "sm_90", 0)
        environment = TARGETS["triton"].environment(probe)
        paths = os.pathsep.join(filter(None, (str(folder), os.environ.get("LD_LIBRARY_PATH"))))
        given = {"TRITON_LIBCUDA_PATH": str(folder), "LD_LIBRARY_PATH": paths, "OMP_NUM_THREADS": "1"}
        path = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        self.fork_server = ForkServer(folder, {**path, **environment, **given}, "cpu")
        self.builds = Builds(folder)
        self.lease, self.queued = Lease(2), asyncio.Event()
        self.device = Device(TARGETS["triton"], probe, self.fork_server, self.lease, {}, folder, folder)
        self.arguments, self.inputs = Shared("arguments"), Shared("inputs")
        self.warm_up = WarmUp(SCALE_ADD, "cpu", 7, self.arguments, [self.inputs])

    async def fill(self) -> None:
        with closing(await self.fork_server.spawn("reference")) as child:
            opened = await child.ask(OpenReference(SCALE_ADD, "cpu", 7, None), [self.arguments])
            self.arguments.seal(opened["arguments"])
            drawn = await child.ask(Draw("get_inputs", 1), [self.inputs])
            self.inputs.seal(drawn["inputs"])

    async def build(self, source: str) -> Build | BuildFault:
        async def progress(words: str, *, ahead: int | None = None) -> None:
            if ahead is not None:
                self.queued.set()

        return await self.builds.get(self.device, source, self.warm_up, 120, progress)

    async def run(self, source: str, built: Build) -> None:
        child = await self.fork_server.spawn("candidate", readable=[built.directory])
        with closing(child):
            opening = OpenCandidate(source, "cpu", 7, self.arguments.spec, [], built.kernels)
            await child.ask(opening, [self.arguments], 60)
            await child.ask(Practise(self.warm_up.specs), [self.inputs], 60)


@asynccontextmanager
async def bench(folder: Path) -> AsyncIterator[Bench]:
    made = Bench(folder)
    try:
        await made.fill()
        yield made
    finally:
        made.fork_server.close()
        made.arguments.close()
        made.inputs.close()


def files(place: str) -> set[str]:
    return {str(p.relative_to(place)) for p in Path(place).rglob("*")}


@needs_triton
@pytest.mark.parametrize("source", [KERNEL, TUNED], ids=["plain", "autotuned"])
async def test_what_the_build_compiled_is_all_that_the_walled_run_needs(tmp_path: Path, source: str) -> None:
    source = NO_DEVICE + edit(source, "\n        return out", LAUNCHED)
    async with bench(tmp_path) as there:
        built = await there.build(source)
        assert isinstance(built, Build), built
        left = files(built.kernels)
        assert sum(name.endswith(".cubin") for name in left) == (1 if "autotune" not in source else 4)
        assert triton_cache.read(Path(built.kernels)) == Jitted(frozenset({"scale_add"}))
        await there.run(source, built)
        assert files(built.kernels) == left
        assert await there.build(source) == replace(built, seconds=0.0)


@needs_triton
async def test_a_kernel_that_the_build_did_not_see_is_not_compiled_in_the_run(tmp_path: Path) -> None:
    told = "BLOCK=512 if 'candidate-' in __import__('os').getcwd() else 256)"
    source = NO_DEVICE + edit(KERNEL, "BLOCK=256)", told)
    async with bench(tmp_path) as there:
        built = await there.build(source)
        assert isinstance(built, Build), built
        left = files(built.kernels)
        with pytest.raises(ChildFault, match="Triton has to compile scale_add in a call"):
            await there.run(source, built)
        assert files(built.kernels) == left


@needs_triton
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ((" * s +", " * missing +"), "missing is not defined"),
        (("BLOCK=256)", "BLOCK=100)"), "power of 2"),
        (("tl.load(x + at, mask=live) * s", "tl.dot(at, at)"), "CompilationError"),
    ],
)
async def test_what_triton_says_of_a_kernel_is_the_builds_log(
    tmp_path: Path, change: tuple[str, str], words: str
) -> None:
    async with bench(tmp_path) as there:
        built = await there.build(NO_DEVICE + edit(KERNEL, *change))
        assert isinstance(built, BuildFault)
        assert words in built.log


@needs_triton
async def test_any_other_fault_of_a_call_is_left_to_the_run(tmp_path: Path) -> None:
    source = NO_DEVICE + edit(KERNEL, "return out", "raise KeyError('mine')")
    async with bench(tmp_path) as there:
        built = await there.build(source)
        assert isinstance(built, Build), built
        with pytest.raises(ChildFault, match="KeyError: 'mine'"):
            await there.run(source, built)


@needs_triton
async def test_a_process_that_ends_in_its_call_is_left_to_the_run(tmp_path: Path) -> None:
    source = NO_DEVICE + edit(KERNEL, "return out", "__import__('os')._exit(3)")
    async with bench(tmp_path) as there:
        built = await there.build(source)
        assert isinstance(built, Build), built
        with pytest.raises(ChildDied, match="exit code 3"):
            await there.run(source, built)


@needs_triton
async def test_the_builds_calls_wait_while_the_device_is_held_alone(tmp_path: Path) -> None:
    async with bench(tmp_path) as there:
        async with there.lease.alone():
            building = asyncio.create_task(there.build(NO_DEVICE + KERNEL))
            await there.queued.wait()
            assert not list(tmp_path.rglob("*.cubin"))
        assert isinstance(await building, Build)


@needs_triton
async def test_a_build_by_calls_belongs_to_its_problem(tmp_path: Path) -> None:
    async with bench(tmp_path) as there:
        one = await there.build(NO_DEVICE + KERNEL)
        there.warm_up = WarmUp(SCALE_ADD + "\n", "cpu", 7, there.arguments, [there.inputs])
        two = await there.build(NO_DEVICE + KERNEL)
        assert isinstance(one, Build)
        assert isinstance(two, Build)
        assert one.directory != two.directory


def test_a_cache_full_of_nonsense_names_no_kernel(tmp_path: Path) -> None:
    for name, text in (
        ("list", "[]"),
        ("none", "{}"),
        ("number", '{"name": 3}'),
        ("cut", '{"na'),
        ("deep", "[" * 9999),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "k.json").write_text(text)
        (tmp_path / name / "k.source").write_text("tt.func public @k(")
    (tmp_path / "bytes").mkdir()
    (tmp_path / "bytes" / "k.json").write_bytes(b"\xff")
    assert triton_cache.read(tmp_path) == Jitted()
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "k.json").write_text(json.dumps({"name": "k"}))
    (tmp_path / "bare" / "k.source").write_text("tt.func public @k(")
    assert triton_cache.read(tmp_path) == Jitted(foreign=frozenset({"k"}))
    assert triton_cache.read(tmp_path / "absent") == Jitted()


def test_the_probe_names_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA H100, 9.0, GPU-1'\n")
    tool.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    found = triton.probe()
    assert (found.available, found.device, found.arch) == (False, "NVIDIA H100", "sm_90")
    assert found.reason == ("the package triton is not installed" if NO_TRITON else triton.probe().reason)
    assert found.fix


def test_the_probe_without_a_gpu_is_as_cudas(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert triton.probe().reason == TARGETS["cuda"].probe().reason == "no CUDA device is visible"
