import pytest

from ncu_server.rules.lint import WARNINGS, read
from tests.support.edits import edit
from tests.support.measuring import HONEST


def test_an_honest_kernel_is_not_turned_away_for_words_in_it() -> None:
    words = "# never caches, no fallback\nimport functools\ntry:\n    pass\nexcept ImportError:\n    pass\n"
    assert read(words + HONEST).rejected is None


def test_leads_are_listed_and_are_no_verdict() -> None:
    reading = read(HONEST.replace("return out", "out.data_ptr(); return out"))
    assert reading.rejected is None
    assert any("data_ptr" in lead for lead in reading.warnings)


def test_a_module_that_only_calls_torch_is_rejected() -> None:
    assert read("import torch\nclass ModelNew(torch.nn.Module):\n    pass").rejected


def test_a_class_assigned_to_the_name_counts() -> None:
    assert read(edit(HONEST, "class ModelNew", "class Mine") + "\nModelNew = Mine").rejected is None


@pytest.mark.parametrize(
    "binding",
    [
        "if torch.get_num_threads() > 1:\n    ModelNew = Mine\nelse:\n    ModelNew = Mine",
        "if True:\n    class ModelNew(Mine):\n        pass",
        "ModelNew: type = Mine",
        "try:\n    ModelNew = Mine\nexcept ImportError:\n    raise",
        "with torch.no_grad():\n    ModelNew = Mine",
        "import collections as ModelNew",
        "from builtins import *",
        "print(ModelNew := Mine)",
        "def choose():\n    global ModelNew\n    ModelNew = Mine\nchoose()",
    ],
)
def test_every_statement_that_binds_the_name_counts(binding: str) -> None:
    assert read(f"{edit(HONEST, 'class ModelNew', 'class Mine')}\n{binding}\n").rejected is None


@pytest.mark.parametrize(
    "binding", ["def f():\n    ModelNew = Mine", "Mine.ModelNew = Mine", "class A:\n    ModelNew = 1"]
)
def test_the_name_bound_elsewhere_than_in_the_module_does_not_count(binding: str) -> None:
    assert "ModelNew" in (read(f"{edit(HONEST, 'class ModelNew', 'class Mine')}\n{binding}\n").rejected or "")


def test_a_fallback_in_a_class_under_a_condition_is_a_lead() -> None:
    text = "if True:\n    class ModelNew:\n        def forward(self, x):\n            return torch.relu(x)\n"
    assert any("torch computes" in lead for lead in read(f"{HONEST}\n{text}").warnings)


@pytest.mark.parametrize(
    "deep",
    ["a" + ".b" * 1500, "-" * 20000 + "1", "1" + "+1" * 1000, "1" + "+1" * 200_000, "a" + "()" * 3000],
)
def test_a_source_nested_too_deeply_is_a_fault_of_its_own_in_one_sentence(deep: str) -> None:
    assert read(f"{HONEST}\nx = {deep}\n").syntax == (
        "the module cannot be read: its expressions or blocks are nested too deeply"
    )


@pytest.mark.parametrize("deep", ["1" + "+1" * 900, "a" + "()" * 450])
def test_a_source_that_every_interpreter_takes_is_read(deep: str) -> None:
    assert read(f"{HONEST}\nx = {deep}\n").syntax is None


def test_a_syntax_error_is_named_with_its_line() -> None:
    assert (read("x = (").syntax or "").startswith("line 1")


def test_a_builder_imported_under_another_name_counts() -> None:
    renamed = edit(
        HONEST,
        "import torch, torch.nn as nn, tvm_ffi.cpp",
        "import torch, torch.nn as nn\nfrom tvm_ffi.cpp import load_inline as make",
    )
    assert read(edit(renamed, "tvm_ffi.cpp.load_inline", "make")).rejected is None


@pytest.mark.parametrize(
    "line",
    [
        "torch.allclose = lambda *a, **k: True",
        "torch.testing.assert_close = None",
        "torch.Tensor.__eq__ = None",
        "torch.cuda.Event.elapsed_time = lambda a, b: 0.0",
        "from torch.cuda import Event as E\nE.elapsed_time = None",
        "t = torch\nt.equal = None",
        "import time\ntime.perf_counter = lambda: 0.0",
        "setattr(torch, 'isclose', None)",
        "import torch.profiler as p\np.profile = None",
        "del torch.cuda.synchronize",
        "import ncu_server.worker.timing.stage as s\ns.refresh = None",
        "import time\nvars(time)['perf_counter_ns'] = None",
        "import time\nfor n in ('time', 'monotonic'):\n    vars(time)[n] = None",
        "import time as t\nt.__dict__.update(time=None)",
        "import time\nsetattr(time, 'perf' + '_counter', None)",
        "vars(torch.testing)['assert_close'] = None",
        "print(torch.autograd._profiler_enabled())",
        "from torch._C._autograd import _profiler_type as kind",
        "watched = getattr(torch.autograd.profiler, '_is_profiler_enabled')",
    ],
)
def test_what_can_never_be_honest_is_rejected(line: str) -> None:
    assert read(f"{HONEST}\n{line}\n").rejected


@pytest.mark.parametrize(
    "line",
    [
        "# time.perf_counter = None; torch.allclose = None",
        "NOTE = 'torch.cuda.Event.elapsed_time = fake'",
        "import sys\nhere = sys.modules[__name__]",
        "class Model(nn.Module):\n    pass\nmodel = Model",
        "torch.backends.cuda.matmul.allow_tf32 = False",
        "import time\nstarted = time.perf_counter()",
        "class Timer:\n    pass\nTimer.time = 1",
        "problem = 3\nreference = problem",
        "same = torch.allclose(torch.ones(1), torch.ones(1))",
        "import threading, functools\n@functools.lru_cache\ndef grid(n): return n",
    ],
)
def test_what_only_looks_like_it_is_not_rejected(line: str) -> None:
    assert read(f"{HONEST}\n{line}\n").rejected is None


@pytest.mark.parametrize(
    "builder",
    [
        "@functools.lru_cache(maxsize=None)\ndef built(n):\n    return load_inline('f', S)",
        "@functools.cache\ndef built():\n    made = load_inline('f', S)\n    return made.run",
    ],
)
def test_a_cache_around_a_builder_remembers_no_result(builder: str) -> None:
    assert not any(w.startswith("caches") for w in read(f"{HONEST}\nimport functools\n{builder}\n").warnings)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("frames", "import sys\nf = sys._getframe(1)"),
        ("frames", "import inspect\ninspect.stack()"),
        ("gc", "import gc\ngc.get_objects()"),
        ("sys.modules", "import sys\nsys.modules['os']"),
        ("ctypes", "from ctypes import CDLL"),
        ("processes", "import os\nos.fork()"),
        ("processes", "from os import system as run\nrun('ls')"),
        ("processes", "import subprocess"),
        ("exit", "import os\nos._exit(0)"),
        ("threads", "from concurrent.futures import ThreadPoolExecutor"),
        ("network", "import socket"),
        ("files", "open('x', 'w')"),
        ("environment", "import os\nos.environ['HOME']"),
        ("hidden code", "exec('1')"),
        ("hidden code", "import base64"),
        ("address keys", "seen = {}\ndef f(x): return seen[x.data_ptr()]"),
        ("address keys", "seen = {}\ndef f(x):\n    key = (x.data_ptr(), 1)\n    return seen.get(key)"),
        ("address keys", "seen = {}\ndef f(x): return id(x) in seen"),
        ("data_ptr", "def f(x): return x.data_ptr()"),
        ("caches", "from functools import cache"),
        ("caches", "import functools\n@functools.cache\ndef f(x): return load_inline('f', S).f(x)"),
        ("caches", "from functools import cache\n@cache\ndef f(): return load_inline('f')\n@cache\ndef g(x): return x"),
        ("caches", "from functools import cache\n@cache\ndef f(x):\n    a = load_inline('f', S)\n    return x"),
        (
            "fallback",
            "class Other(nn.Module):\n    def forward(self, x):\n        try: pass\n        finally: pass",
        ),
        ("torch.compile", "f = torch.compile(nn.Linear(1, 1))"),
        ("CUDA graphs", "g = torch.cuda.CUDAGraph()"),
        ("streams", "s = torch.cuda.Stream()"),
        ("events", "e = torch.cuda.Event()"),
        ("comparison", "torch.allclose(torch.ones(1), torch.ones(1))"),
        ("numeric libraries", "import numpy as np"),
        ("numeric libraries", "torch.ones(1).numpy()"),
        ("threads of torch", "torch.set_num_threads(1)"),
        ("defaults of torch", "torch.set_default_dtype(torch.bfloat16)"),
        ("defaults of torch", "torch.backends.cuda.matmul.allow_tf32 = True"),
        ("patches torch", "torch.nn.functional.gelu = None"),
        ("profiler", "torch.profiler.record_function('mine')"),
        ("lying tensors", "class Lie(torch.Tensor): pass"),
        ("torch computes", "class Other(nn.Module):\n    def forward(self, x): return torch.relu(x)"),
        ("torch computes", "class Other(nn.Module):\n    def forward(self, x): return x @ x"),
        ("foreign calls in C++", "S = 'auto t = at::linear(x, w, b);'"),
        ("foreign calls in C++", "S = 'cblas_sgemm(1);'"),
        ("foreign calls in C++", "S = 'cublasSgemm(h);'"),
    ],
)
def test_each_lead_has_its_row(name: str, line: str) -> None:
    assert not [lead for lead in read(HONEST).warnings if lead.startswith(f"{name}:")]
    reading = read(f"{HONEST}\n{line}\n")
    assert reading.rejected is None
    assert [lead for lead in reading.warnings if lead.startswith(f"{name}:")]
    assert name in {rule.name for rule in WARNINGS}


def test_libraries_that_compute_unseen_are_named() -> None:
    assert read(HONEST).numeric == ()
    given = edit(HONEST, "return out", "return np.abs(out)")
    assert read("import numpy as np\n" + given).numeric == ("numpy",)
    assert read("from numpy.linalg import norm as np\n" + given).numeric == ("numpy",)
    assert read(edit(HONEST, "return out", "return torch.from_numpy(out.numpy())")).numeric == ("numpy",)
    assert read(edit(HONEST, "return out", "return out.__array__() and out")).numeric == ("numpy",)
    assert read("import cffi\nf = cffi.FFI()\n" + HONEST).numeric == ("cffi",)
    assert read("np = __import__('num' + 'py')\n" + HONEST).numeric == ("a library of no plain name",)


@pytest.mark.parametrize(
    "use", ["globals()['n' + 'p']", "vars(M)", "sys.modules", "eval", "M.np", "__builtins__", "'np'"]
)
def test_a_library_only_imported_computes_nothing_unless_its_name_may_hide(use: str) -> None:
    assert read("import numpy as np\n" + HONEST).numeric == ()
    assert read(f"import numpy as np\nimport sys\nX = lambda: {use}\n" + HONEST).numeric == ("numpy",)
    assert read("from numpy import *\n" + HONEST).numeric == ("numpy",)
    shadowed = "import numpy as np\ndef unused():\n    import math as np\nX = np.sort\n"
    assert read(shadowed + HONEST).numeric == ("numpy",)


def test_a_long_word_is_read_in_time_that_grows_with_its_length() -> None:
    assert read(f"{HONEST}\nX = 'cublas{'Gemm' * 50_000}'\n").rejected is None


def test_torch_compile_alone_is_no_kernel_of_its_own() -> None:
    wrapped = "import torch\nclass ModelNew(torch.nn.Module):\n    pass\nf = torch.compile(ModelNew())"
    assert read(wrapped).rejected
