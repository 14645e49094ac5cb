"""Freed memory stays with a child: real processes, their own page faults counted."""

import gc
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import torch

from ncu_server.worker.tensors import flatten

PRELUDE = """
import sys
from pathlib import Path
from ncu_server.worker.timing import allocator
import torch
def faults(): return int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[7])
def resident(): return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) >> 10
allocator.settle_malloc()
said = allocator.install(Path(sys.argv[1]))
"""


def run(tmp_path: Path, code: str, **environment: str) -> str:
    command = [sys.executable, "-c", PRELUDE + code, str(tmp_path)]
    path = {"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=path | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the library is built once."""
    return tmp_path_factory.mktemp("allocator")


def test_calls_after_the_first_pay_no_page_faults(folder: Path) -> None:
    code = """
x = torch.randn(4 << 20)
for _ in range(2):
    (x * 2 + x).clone()
before = faults()
for _ in range(5):
    (x * 2 + x).clone()
print(said, faults() - before < 100)
"""
    assert run(folder, code) == "None True"


def test_memory_is_given_back_when_it_is_released(folder: Path) -> None:
    code = """
del_me = torch.ones(16 << 20)
del del_me
held = resident()
allocator.release()
print(held - resident() >= 60)
"""
    assert run(folder, code) == "True"


def test_memory_that_was_used_before_is_filled_too(folder: Path) -> None:
    code = """
x = torch.ones(4 << 20)
del x
allocator.fill(True)
filled = torch.empty(4 << 20)
small = torch.empty(1000)
allocator.fill(False)
print(bool((filled != 1).all()), bool((small != 1).all()), bool((torch.zeros(4 << 20) == 0).all()))
"""
    assert run(folder, code) == "True True True"


def test_views_of_a_tensor_keep_its_memory_from_being_used_again(folder: Path) -> None:
    code = """
x = torch.full((4 << 20,), 7.0)
view = x[5:10]
del x
other = torch.zeros(4 << 20)
print(view.tolist())
"""
    assert run(folder, code) == str([7.0] * 5)


def test_libraries_that_allocate_without_a_tensor_work(folder: Path) -> None:
    code = """
f = torch.nn.functional
x = torch.ones(2, 16, 128, 128)
for shape in ((8, 8), (2048, 2048)):
    y = torch.ones(shape)
    f.gelu(y), f.linear(y, y), y @ y, torch.linalg.inv(torch.eye(shape[0])), torch.fft.fft(y), y.sort(), y.unique()
f.conv2d(x, torch.ones(16, 16, 3, 3)), f.max_pool2d(x, 2), f.batch_norm(x, torch.zeros(16), torch.ones(16))
grown = torch.ones(4)
grown.resize_(4 << 20).resize_(8 << 20)
print(float(grown[0]), float(f.conv2d(x, torch.ones(16, 16, 3, 3))[0, 0, 1, 1]))
"""
    assert run(folder, code) == "1.0 144.0"


def test_what_is_too_large_raises_and_leaves_the_rest_usable(folder: Path) -> None:
    code = """
try:
    torch.empty(1 << 60, dtype=torch.uint8)
except RuntimeError as fault:
    print("not enough memory" in str(fault), float(torch.ones(4 << 20).sum()))
"""
    assert run(folder, code) == "True 4194304.0"


def test_without_a_compiler_it_says_so_and_tensors_are_mallocs(tmp_path: Path) -> None:
    assert run(tmp_path, "print(said)", CXX="/nonexistent/c++").startswith("page faults of large tensors are part of")


@pytest.mark.long
def test_the_library_is_built_once(tmp_path: Path) -> None:
    run(tmp_path, "")
    (built,) = tmp_path.glob("keeping-*.so")
    first = built.stat().st_mtime_ns
    run(tmp_path, "")
    assert built.stat().st_mtime_ns == first
    assert list(tmp_path.iterdir()) == [built]


def test_flattening_an_output_keeps_nothing_of_it_alive() -> None:
    gc.disable()
    try:
        out = {"a": [torch.ones(3)], "b": (torch.ones(4),)}
        structure, tensors = flatten(out, strict=True)
        alive = [weakref.ref(t) for t in tensors]
        del out, tensors
        assert [ref() for ref in alive] == [None, None], structure
    finally:
        gc.enable()
