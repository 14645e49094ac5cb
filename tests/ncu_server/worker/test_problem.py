"""Problems as people keep them: which module is meant, what their code may do at import, how they are judged."""

import random
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from ncu_server.worker.problem import LoadedProblem
from tests.support.edits import edit
from tests.support.measuring import QUICK, SCALE_ADD, Server

HEAD = "import torch\nfrom torch import nn\n"
INPUTS = "def get_inputs():\n    return [torch.randn(8, 16)]\n"


def module(name: str, forward: str = "return x * 2", init: str = "", arguments: str = "") -> str:
    made = f"    def __init__(self{arguments}):\n        super().__init__()\n        {init or 'pass'}\n"
    return f"class {name}(nn.Module):\n{made}    def forward(self, x):\n        {forward}\n"


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of its own: a problem finds its file in the working directory and sees no arguments."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["judge", "--secret"])
    monkeypatch.setitem(sys.modules, "problem", None)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (module("Shifty"), "Shifty"),
        (module("Other") + module("Model"), "Model"),
        (module("Half") + module("Net", init="self.half = Half()"), "Net"),
        (module("Net", init="self.half = Half()") + module("Half"), "Net"),
        (
            module("A") + "KINDS = {'a': A}\ndef make():\n    return KINDS['a']()\n" + module("Net", init="make()"),
            "Net",
        ),
        (module("Base") + "class Net(Base):\n    pass\n", "Net"),
        (
            "try:\n    import absent\nexcept ImportError:\n    class Net(nn.Module):\n        pass\n",
            "Net",
        ),
        (module("Net") + "def main():\n    Net()\nif __name__ == '__main__':\n    main()\n", "Net"),
        (module("Net") + "Model = Net\n", "Net"),
        (module("A", "out = x; return out") + module("Net", init="A()") + "out = Net()\n", "Net"),
    ],
)
def test_the_module_that_no_other_uses_is_the_problem(source: str, name: str) -> None:
    problem = LoadedProblem(HEAD + source + INPUTS)
    assert problem.model_class.__name__ == name and problem.note is None


def test_of_several_that_nobody_uses_the_last_is_taken_and_that_is_said() -> None:
    problem = LoadedProblem(HEAD + module("A") + module("B") + INPUTS)
    assert problem.model_class.__name__ == "B"
    assert problem.note == "judged is the last module, `B`, and not `A`: name one `Model` to choose it"


@pytest.mark.parametrize(
    "line",
    [
        "import sys; assert len(sys.argv) == 1",
        "import argparse; p = argparse.ArgumentParser(); p.add_argument('-n', default=1); p.parse_args()",
        "print('{}' * 1000)",
        "torch.set_num_threads(1); torch.set_num_interop_threads(1)",
        "torch.set_default_device('meta')",
        "import os; assert os.listdir(os.path.dirname(__file__))",
        "from pathlib import Path; assert 'class Net' in Path(__file__).read_text()",
        "from pathlib import Path; assert Path(__file__).is_absolute()",
        "import inspect",
    ],
)
def test_code_at_import_sees_a_bare_program_and_leaves_the_judge_s_settings(line: str) -> None:
    threads = torch.get_num_threads()
    problem = LoadedProblem(f"{HEAD}{line}\n{module('Net')}{INPUTS}")
    assert torch.get_num_threads() == threads
    ((args, _),) = problem.drawn("get_inputs", 3, problem.model_class().forward)
    assert args[0].device.type == "cpu"


@pytest.mark.parametrize(
    "end", ["import sys\nsys.exit(0)", "raise SystemExit", "exit()", "def main():\n    quit(3)\nmain()"]
)
def test_an_exit_is_the_end_of_the_file(end: str) -> None:
    assert LoadedProblem(f"{HEAD}{module('Net')}{INPUTS}{end}\n1 / 0\n").model_class.__name__ == "Net"


def test_an_exit_before_the_problem_is_there_is_named_with_its_line() -> None:
    with pytest.raises(SystemExit, match=r"ends the program in line 4 with 'usage: x FILE' before .* `get_inputs`"):
        LoadedProblem(f"{HEAD}import sys\nsys.exit('usage: x FILE')\n{module('Net')}{INPUTS}")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "import absent.inner",
            "it imports `absent`, which is not installed where kernels are measured; a problem is one",
        ),
        ("from .layers import f", "it imports a file beside it by a relative import; a problem is one file"),
    ],
)
def test_a_helper_file_that_is_not_there_is_named(line: str, words: str) -> None:
    with pytest.raises(ImportError, match=words):
        LoadedProblem(f"{HEAD}{line}\n{module('Net')}{INPUTS}")


def test_generators_give_lists_that_are_drawn_under_the_secret_seed() -> None:
    init = "def get_init_inputs():\n    yield 3\n"
    problem = LoadedProblem(
        HEAD + module("Net", arguments=", width") + "def get_inputs():\n    yield torch.randn(8)\n" + init
    )
    model, arguments = problem.built(1, "cpu")
    (first, *_), (again, *_) = (problem.drawn("get_inputs", 7, model.forward) for _ in range(2))
    assert arguments[0] == [3] and torch.equal(first[0][0], again[0][0])


def test_draws_are_of_the_secret_seed_whatever_seed_the_problem_sets() -> None:
    seeds = "torch.manual_seed(0); random.seed(0); return [torch.rand(4), random.random()]"
    source = f"import random\n{HEAD}{module('Net', init='torch.manual_seed(1); self.w = torch.rand(3)')}"
    problem = LoadedProblem(f"{source}def get_inputs():\n    {seeds}\n")
    (one,), (other,) = (problem.drawn("get_inputs", seed, lambda x, y: None) for seed in (1, 2))
    assert not torch.equal(one[0][0], other[0][0]) and one[0][1] != other[0][1]
    models = [problem.built(seed, "cpu")[0] for seed in (1, 1, 2)]
    assert torch.equal(models[0].w, models[1].w) and not torch.equal(models[0].w, models[2].w)
    random.seed(5)


@pytest.mark.parametrize(
    ("given", "forward", "sizes", "names"),
    [
        ("[[64], {'names': 'ab'}]", "return x * self.sizes * len(self.names)", 64, "ab"),
        ("[[1, 2], {}]", "return x * len(self.sizes) * len(self.names)", [1, 2], {}),
        ("[[1, 2], {}]", "return x * self.sizes * self.names", 1, 2),
    ],
)
def test_of_two_readings_of_constructor_arguments_the_one_that_runs_counts(
    given: str, forward: str, sizes: Any, names: Any
) -> None:
    init = "self.sizes, self.names = sizes, names"
    source = (
        f"{HEAD}{module('Net', forward, init, ', sizes, names')}{INPUTS}def get_init_inputs():\n    return {given}\n"
    )
    model, _ = LoadedProblem(source).built(3, "cpu")
    assert (model.sizes, model.names) == (sizes, names)


HARD = """
import argparse, sys
from dataclasses import dataclass
import torch
from torch import nn
torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
print("{}" * 1000)
arguments = argparse.ArgumentParser().parse_args()

@dataclass
class Config:
    gain: float = 2.0

@dataclass
class Out:
    y: torch.Tensor
    parts: dict

class Half(nn.Module):
    def forward(self, x):
        return x * 0.5

class Net(nn.Module):
    def __init__(self, width, config):
        super().__init__()
        self.part, self.config = Half(), config
        self.weight = nn.Parameter(torch.randn(width))
    def forward(self, x, *, scale, mode, mask=None):
        y = self.part(x) * self.weight * scale * self.config.gain
        return Out(y if mode == "as is" else -y, {1: x + self.weight, "n": 3})

def get_inputs():
    return [torch.randn(32, 64)], {"scale": 3.0, "mode": "as is", "mask": None}

def get_init_inputs():
    return [[64], {"config": Config()}]

sys.exit(0)
"""
KERNEL = '''
from dataclasses import dataclass
import torch, torch.nn as nn, tvm_ffi.cpp
SOURCE = r"""
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView w, tvm::ffi::TensorView y, tvm::ffi::TensorView z, double s) {
  const double *p = static_cast<const double*>(x.data_ptr()), *q = static_cast<const double*>(w.data_ptr());
  double *a = static_cast<double*>(y.data_ptr()), *b = static_cast<double*>(z.data_ptr());
  for (int64_t i = 0, n = w.numel(); i < x.numel(); ++i) a[i] = p[i] * q[i % n] * s, b[i] = p[i] + q[i % n];
}
"""
kernel = tvm_ffi.cpp.load_inline("hard", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])

@dataclass
class Out:
    y: torch.Tensor
    parts: dict

class ModelNew(nn.Module):
    def __init__(self, width, config):
        super().__init__()
        self.gain = config.gain
        self.weight = nn.Parameter(torch.randn(width))
    def forward(self, x, *, scale, mode, mask=None):
        y, z = torch.empty_like(x), torch.empty_like(x)
        kernel.run(x, self.weight.detach(), y, z, (0.5 if mode == "as is" else -0.5) * scale * self.gain)
        return RETURNED
'''


@pytest.mark.asyncio(loop_scope="session")
async def test_a_problem_of_every_kind_at_once_is_judged_beside_a_kernel_apart(server: Server) -> None:
    result = await server.evaluate(edit(KERNEL, "RETURNED", 'Out(y, {"n": 3, 1: z})'), problem=HARD)
    assert result["status"] == "passed", result["log"]
    result = await server.evaluate(edit(KERNEL, "RETURNED", '{"y": y, "parts": {"n": 3, 1: z}}'), problem=HARD)
    assert result["status"] == "wrong"
    assert "a dict with keys y, parts where the reference returns a dataclass Out(y, parts)" in result["log"]


LATE = edit(
    edit(
        edit(KERNEL, "RETURNED", "Late(y=y, parts={'n': 3, 1: z})"),
        "kernel.run(x,",
        "global WORK; WORK = lambda: kernel.run(x,",
    ),
    "class ModelNew",
    """
class Late(dict):
    def __init__(self, **parts):
        super().__init__(parts)
        if len(CALLS) % 2:
            WORK()
        CALLS.append(1)

Late.__dataclass_fields__ = Out.__dataclass_fields__
Late.__name__ = Late.__qualname__ = "Out"
CALLS = []

class ModelNew""",
)


@pytest.mark.asyncio(loop_scope="session")
async def test_a_container_that_computes_when_rebuilt_is_not_believed(server: Server) -> None:
    result = await server.evaluate(LATE, problem=HARD)
    assert result["status"] in ("wrong", "run_error"), result["log"]


@pytest.mark.asyncio(loop_scope="session")
async def test_models_that_compute_in_inference_mode_are_judged(server: Server) -> None:
    problem = edit(SCALE_ADD, "    def forward", "    @torch.inference_mode()\n    def forward")
    kernel = edit(QUICK, "    def forward", "    @torch.inference_mode\n    def forward")
    result = await server.evaluate(kernel, problem)
    assert result["status"] == "passed", result["log"]


@pytest.mark.asyncio(loop_scope="session")
async def test_keywords_and_records_are_traced_and_profiled(server: Server) -> None:
    plain = edit(edit(HARD, "Out(y if", "(y if"), '{1: x + self.weight, "n": 3})', "x + self.weight)")
    answer = await server.call("describe_problem", problem=plain, target="cpu", baselines=["eager"])
    assert answer.structured_content is not None and answer.structured_content["graph_error"] is None
    graph = (await server.client.read_resource(answer.structured_content["graph_uri"])).contents[0]
    assert '"keywords": ["scale", "mode", "mask"]' in str(getattr(graph, "text", ""))
    candidates = [edit(KERNEL, "RETURNED", "(y, z)")]
    answer = await server.call("profile_kernel", candidates=candidates, problem=plain, target="cpu")
    assert not answer.is_error, answer.content
