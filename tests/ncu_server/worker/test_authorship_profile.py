"""Who does the work, through a real server: own kernels, decoys, fallbacks, NumPy, and what lies between."""

import pytest

from tests.support.edits import edit
from tests.support.measuring import HONEST, QUICK, SCALE_ADD, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")

CALL = "kernel.run(x, y, self.bias.detach(), out, self.scale)"
TORCH = "return x * self.scale + y + self.bias"
HALF = "return out + torch.sin(out) * 0.0"  # about as much work as the kernel
BIG = edit(SCALE_ADD, "torch.randn(64, 256)", "torch.randn(4096, 256)", times=2)
DECOY = edit(QUICK, CALL, f"kernel.run(x[0, :1], y[0, :1], self.bias.detach(), torch.empty(1), 1.0)\n        {TORCH}")
ONE_ROW = edit(
    edit(
        QUICK,
        "return out",
        f"part = out[:1].clone()\n        out = {TORCH[7:]}\n        out[:1] = part\n        return out",
    ),
    CALL,
    "kernel.run(x[:1], y[:1], self.bias.detach(), out[:1], self.scale)",
)
FALLBACK = edit(QUICK, CALL, "try:\n            kernel.run(x)\n        except Exception:\n            " + TORCH)
ABSENT = edit(QUICK, CALL, TORCH)
NUMPY = edit(
    edit(QUICK, CALL, "kernel.run(x[0, :1], y[0, :1], self.bias.detach(), torch.empty(1), 1.0)"),
    "return out",
    "return torch.from_numpy(x.numpy() * np.float32(self.scale) + y.numpy() + self.bias.detach().numpy())",
)
THREAD = edit(
    QUICK,
    CALL,
    "kernel.run(x[0, :1], y[0, :1], self.bias.detach(), torch.empty(1), 1.0)\n"
    "        import threading\n        made = []\n"
    "        t = threading.Thread(target=lambda: made.append((x * self.scale + y + self.bias).detach()))\n"
    "        t.start()\n        t.join()\n        return made[0]",
)


async def judged(server: Server, candidate: str, problem: str = BIG, **more: str) -> tuple[str, str | None]:
    result = await server.evaluate(candidate, problem=problem, **more)
    assert (result["timing"] is None) == (result["status"] != "passed")
    return result["status"], result["provenance"].get("label")


async def test_a_kernel_of_its_own_is_custom_with_all_of_the_share(server: Server) -> None:
    result = await server.evaluate(HONEST, rules="strict")
    assert result["status"] == "passed", result["log"]
    assert (result["provenance"]["label"], result["provenance"]["own_share"]) == ("custom", 1.0)


@pytest.mark.parametrize(
    ("kept", "run"),
    [
        ("import functools\nrun = functools.partial(kernel.run)", "run"),
        ("class Kernels:\n    def __init__(self):\n        self.run = kernel.run\nkernels = Kernels()", "kernels.run"),
        ("run = kernel.run.__call__", "run"),
    ],
    ids=["a partial", "an object", "a bound method"],
)
async def test_a_kernel_that_no_collector_reaches_is_seen_in_a_model_made_anew(
    server: Server, kept: str, run: str
) -> None:
    """Beside one small operator of torch, which would be all that is seen."""
    held = edit(edit(HONEST, "class ModelNew", f"{kept}\n\nclass ModelNew"), "kernel.run(x", f"{run}(x")
    held = edit(held, "self.bias.detach()", "self.bias.detach().abs()")
    problem = edit(edit(SCALE_ADD, "+ self.bias", "+ self.bias.abs()"), "randn(64, 256)", "randn(512, 256)", times=2)
    assert (await judged(server, held, problem))[1] in ("custom", "hybrid")


async def test_torch_that_works_in_the_first_model_alone_is_library(server: Server) -> None:
    count = "import sys\nFIRST = not hasattr(sys, 'made')\nsys.made = 1\n\nclass ModelNew"
    twice = edit(
        edit(QUICK, "class ModelNew", count), "        out = torch", f"        if FIRST: {TORCH}\n        out = torch"
    )
    assert await judged(server, twice) == ("rejected", "library")


async def test_a_copy_by_torch_with_a_kernel_beside_it_is_library(server: Server) -> None:
    problem = edit(BIG, "return x * self.scale + y + self.bias", "return x.t().contiguous()")
    decoy = edit(QUICK, CALL, "kernel.run(x[0, :1], y[0, :1], self.bias.detach(), torch.empty(1), 1.0)")
    decoy = edit(decoy, "return out", "return x.t().clone(memory_format=torch.contiguous_format)")
    assert await judged(server, decoy, problem) == ("rejected", "library")


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ('f"scale_add_{os.getpid()}"', ""),
        ('"scale_add"', "build_directory=os.path.join(tempfile.gettempdir(), 'built'), "),
    ],
    ids=["a name of its own", "a place of its own"],
)
async def test_a_library_is_found_again_whatever_its_name_and_place(server: Server, name: str, more: str) -> None:
    asked = "import os, tempfile\n" + edit(HONEST, 'load_inline("scale_add", ', f"load_inline({name}, {more}")
    assert await judged(server, asked) == ("passed", "custom")


OPERATOR = '''
import torch, torch.nn as nn
from torch.utils.cpp_extension import load_inline
load_inline("scaled", is_python_module=False, cpp_sources=r"""
#include <torch/library.h>
at::Tensor run(const at::Tensor& x, const at::Tensor& y, const at::Tensor& b, double s) {
  at::Tensor o = at::empty_like(x);
  const float *p = x.data_ptr<float>(), *q = y.data_ptr<float>(), *c = b.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) o.data_ptr<float>()[i] = p[i] * (float)s + q[i] + c[i % b.numel()];
  return o;
}
TORCH_LIBRARY(mine, m) { m.def("run(Tensor x, Tensor y, Tensor b, float s) -> Tensor", run); }
""")

class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.bias = nn.Parameter(torch.randn(256))

    def forward(self, x, y):
        return torch.ops.mine.run(x, y, self.bias.detach(), self.scale)
'''


@pytest.mark.long
async def test_an_operator_that_a_library_registers_is_its_own(server: Server) -> None:
    assert await judged(server, OPERATOR) == ("passed", "custom")


@pytest.mark.long
@pytest.mark.parametrize(
    "place",
    [
        '({"runs": [kernel.run]},)',
        *(pytest.param(p, marks=pytest.mark.long) for p in ('{"run": kernel.run}', "[kernel.run]")),
    ],
)
async def test_a_kernel_is_seen_wherever_it_is_kept(server: Server, place: str) -> None:
    path = {"{": '["run"]', "[": "[0]", "(": '[0]["runs"][0]'}[place[0]]
    kept = edit(HONEST, "class ModelNew", f"import gc\nKEPT = {place}\ngc.collect()\n\nclass ModelNew")
    kept = edit(edit(kept, CALL, edit(CALL, "kernel.run", f"KEPT{path}")), "return out", "return out * 1.0 * 1.0")
    assert (await judged(server, kept))[1] == "hybrid"


@pytest.mark.parametrize(
    ("candidate", "problem"),
    [
        pytest.param(DECOY, BIG, id="decoy"),
        pytest.param(ONE_ROW, BIG, id="one row of its own", marks=pytest.mark.long),
        pytest.param(THREAD, BIG, id="torch in a thread"),
        pytest.param(FALLBACK, SCALE_ADD, id="fallback", marks=pytest.mark.long),
        pytest.param(DECOY, SCALE_ADD, id="small decoy", marks=pytest.mark.long),
        pytest.param(ABSENT, SCALE_ADD, id="kernel never called"),
    ],
)
async def test_work_done_by_torch_is_rejected_at_any_size(server: Server, candidate: str, problem: str) -> None:
    result = await server.evaluate(candidate, problem=problem)
    assert result["status"] == "rejected", (result["log"], result["provenance"])
    assert result["provenance"]["label"] == "library"
    assert "aten::" in result["log"]


async def test_a_candidate_that_knows_when_its_kernel_is_watched_is_rejected(server: Server) -> None:
    aware = edit(
        edit(HONEST, "class ModelNew", "REAL = (kernel.run,)\n\nclass ModelNew"),
        CALL,
        f"if kernel.run is REAL[0]: {TORCH}\n        {CALL}",
    )
    assert (await judged(server, aware))[0] == "rejected"


async def test_numpy_behind_a_decoy_is_rejected(server: Server) -> None:
    result = await server.evaluate("import numpy as np\n" + NUMPY, problem=BIG)
    assert (result["status"], result["provenance"]["label"]) == ("rejected", "library"), result["log"]
    assert "numpy" in result["log"]


@pytest.mark.long
@pytest.mark.parametrize(
    "change",
    [
        ("return out", "return out.reshape(1, *out.shape).contiguous().squeeze(0)"),
        (
            "out = torch.empty_like(x)",
            "x, y = x.t().contiguous().t().contiguous(), y.clone()\n        out = torch.zeros_like(x)",
        ),
        (
            "self.bias = nn.Parameter(torch.randn(256))",
            "self.bias = nn.Parameter(torch.randn(256))\n        self.fc = nn.Linear(2, 2)",
        ),
    ],
    ids=["reshape", "copies", "container"],
)
async def test_moving_data_with_torch_is_no_computing(server: Server, change: tuple[str, str]) -> None:
    assert await judged(server, edit(HONEST, *change), rules="strict") == ("passed", "custom")


KEPT = {
    "global": "run = kernel.run",
    "closure": "def maker():\n    f = kernel.run\n    return lambda *a: f(*a)\nrun = maker()",
    "list": "runs = [kernel.run]\nrun = lambda *a: runs[0](*a)",
    "item": "run = kernel['run']",
    "partial": "import functools\nrun = functools.partial(kernel.run)",
}


@pytest.mark.long
@pytest.mark.parametrize("keep", KEPT)
async def test_a_kernel_is_credited_wherever_the_candidate_keeps_it(server: Server, keep: str) -> None:
    kept = edit(edit(HONEST, "class ModelNew", f"{KEPT[keep]}\n\nclass ModelNew"), "kernel.run(x", "run(x")
    mixed = edit(kept, "return out", HALF)
    assert await judged(server, mixed) == ("passed", "hybrid")


async def test_a_kernel_in_a_library_of_torch_s_load_inline_is_credited_too(server: Server) -> None:
    assert await judged(server, edit(QUICK, "return out", HALF)) == ("passed", "hybrid")


@pytest.mark.long
async def test_half_and_half_is_hybrid_and_only_the_strict_rules_reject_it(server: Server) -> None:
    half = edit(HONEST, "return out", HALF)
    assert await judged(server, half) == ("passed", "hybrid")
    result = await server.evaluate(half, problem=BIG, rules="strict")
    assert result["status"] == "rejected"
    assert "strict" in result["log"]


async def test_a_small_honest_hybrid_is_not_taken_for_a_decoy(server: Server) -> None:
    tiny = edit(SCALE_ADD, "torch.randn(64, 256)", "torch.randn(1, 256)", times=2)
    assert await judged(
        server,
        edit(QUICK, "return out", "return out.relu().sub_(0.0)"),
        problem=edit(tiny, "x * self.scale + y + self.bias", "torch.relu(x * self.scale + y + self.bias)"),
    ) == ("passed", "hybrid")


async def test_calling_blas_from_the_library_is_named(server: Server) -> None:
    blas = edit(
        HONEST, "void run(", 'extern "C" void cblas_saxpy(int, float, const float*, int, float*, int);\nvoid run('
    )
    blas = edit(blas, "int64_t n = b.numel();", "int64_t n = b.numel(); if (s > 1e30) cblas_saxpy(1, 0.f, p, 1, d, 1);")
    result = await server.evaluate(
        edit(blas, '["-O3"]', '["-O3"], extra_ldflags=["-Wl,-z,lazy"]'), problem=BIG, rules="strict"
    )
    assert result["status"] == "rejected", result["log"]
    assert "cblas_saxpy" in result["log"]


async def test_a_patched_profiler_hides_nothing(server: Server) -> None:
    patched = "import torch.autograd.profiler as p\nfor name in dir(p):\n    setattr(p, name, None)\n"
    assert (await judged(server, patched + DECOY))[0] == "rejected"


async def test_unknown_rules_are_refused(server: Server) -> None:
    answer = await server.call("evaluate_kernel", candidate=QUICK, problem=SCALE_ADD, target="cpu", rules="lax")
    assert answer.is_error
