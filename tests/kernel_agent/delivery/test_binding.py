"""Torch's own binding in place of tvm_ffi's: what it replaces, what it has, and what it refuses by name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kernel_agent.delivery.binding import bound
from kernel_agent.delivery.module import delivered
from kernel_agent.errors import UsageError
from kernel_agent.run.types import Problem
from tests.support.deliveries import PROBLEM, description, ran

ROOT = Path(__file__).resolve().parents[3]
IMPORTS = {
    "import tvm_ffi.cpp": "tvm_ffi = _ka_tvm_ffi",
    "import tvm_ffi": "tvm_ffi = _ka_tvm_ffi",
    "import tvm_ffi.cpp as cpp": "cpp = _ka_tvm_ffi.cpp",
    "from tvm_ffi import cpp": "cpp = _ka_tvm_ffi.cpp",
    "from tvm_ffi.cpp import load_inline as build": "build = _ka_tvm_ffi.cpp.load_inline",
    "import math, tvm_ffi.cpp": "import math; tvm_ffi = _ka_tvm_ffi",
    "x = 'é'; import tvm_ffi.cpp; y = 2": "x = 'é'; tvm_ffi = _ka_tvm_ffi; y = 2",
    "from tvm_ffi.cpp import (\n    load_inline,\n)": "load_inline = _ka_tvm_ffi.cpp.load_inline",
    "s = 'import tvm_ffi.cpp'": "s = 'import tvm_ffi.cpp'",
}


@pytest.mark.parametrize("code", IMPORTS)
def test_the_other_binding_replaces_imports_and_nothing_else(code: str) -> None:
    assert bound(code) == IMPORTS[code]


def cpp(body: str, more: str = "") -> str:
    return f"import tvm_ffi.cpp\nkernel = tvm_ffi.cpp.load_inline('k', cpp_sources='{body}', functions=['run']{more})"


LACKING = {
    "from tvm_ffi import dtype": "tvm_ffi.dtype",
    "import tvm_ffi\ny = tvm_ffi.from_dlpack(x)": "tvm_ffi.from_dlpack",
    "from tvm_ffi import cpp\ny = cpp.load('a.so')": "tvm_ffi.cpp.load",
    "import tvm_ffi.module": "tvm_ffi.module",
    cpp("TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, Run);"): "TVM_FFI_DLL_EXPORT_TYPED_FUNC",
    cpp("void run(tvm::ffi::Tensor x) {}"): "tvm::ffi::Tensor",
    cpp("namespace ffi = tvm::ffi; ffi::Any run(int x) {}"): "tvm::ffi::Any",
    cpp("void run(int x) { TVMFFITensorAlloc(x); }"): "TVMFFITensorAlloc",
    cpp("std::string run(int x) { }"): "std::string in the signature of `run`",
    cpp("void run(const char* x) { }"): "char in the signature of `run`",
    cpp("void run() { }", more=", embed_cubin=made"): "`embed_cubin` of load_inline",
}


@pytest.mark.parametrize("code", LACKING)
def test_what_the_other_binding_does_not_have_is_named(code: str) -> None:
    sentence = f"The kernel uses {LACKING[code]}, which torch's binding has no counterpart of: deliver it with"
    with pytest.raises(UsageError, match=re.escape(sentence)):
        bound(code)


@pytest.mark.parametrize(
    "code",
    [
        cpp("int64_t run(tvm::ffi::TensorView x, double y) { TVM_FFI_ICHECK_EQ(x.dim(), 1); }"),
        cpp("void run(std::size_t n) { std::string s; /* tvm::ffi::Any */ }  // TVM_FFI_DLL_EXPORT_TYPED_FUNC"),
        '"""Made by TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run)."""',
        "os.environ['TVM_FFI_CACHE_DIR'] = 'a'",
        "tvm_ffi = 1\ntvm_ffi.from_dlpack",
    ],
)
def test_what_it_has_and_what_is_no_code_is_not_refused(code: str) -> None:
    assert bound(code).count("import tvm_ffi") == 0


def test_no_kernel_of_ours_is_refused() -> None:
    places = [ROOT / "corpus" / "kernels", ROOT / "kernel_agent" / "proposers"]
    files = (path for place in places for path in sorted(place.rglob("*.*")) if path.suffix in (".py", ".cpp", ".cu"))
    texts = [path.read_text("utf-8") for path in files]
    written = [text for text in texts if "tvm::ffi" in text]
    assert len(written) > 3
    for text in written:
        assert bound(f"kernel = {text!r}")


SOURCE = """
void fill(tvm::ffi::TensorView out, double value) {
  TVM_FFI_ICHECK((out.dtype() == DLDataType{kDLFloat, 32, 1})) << "float32 alone";
  TVM_FFI_ICHECK(!(out.dtype() != DLDataType{kDLFloat, 32, 1}));
  for (int64_t i = 0; i < out.numel(); ++i) static_cast<float*>(out.data_ptr())[i] = static_cast<float>(value);
}
int64_t count(tvm::ffi::TensorView x) { return x.numel(); }
double half(int64_t n) { return n / 2.0; }
bool many(tvm::ffi::TensorView x) { return x.numel() > 3; }
"""
KERNEL = f"""
import tvm_ffi.cpp
kernel = tvm_ffi.cpp.load_inline("all", cpp_sources={SOURCE!r}, functions=["fill", "count", "half", "many"])


class ModelNew(Model):
    def __init__(self, width):
        super().__init__(width)

    def forward(self, x, offset):
        out = torch.empty_like(x)
        kernel["fill"](out, kernel.get_function("half")(1) + offset)
        found = kernel.count(x), kernel["half"](3), kernel.many(x), kernel.fill(out[:0], 0.0)
        print(*found, *[type(one).__name__ for one in found])
        return out
"""


@pytest.mark.parametrize("bind", ["tvm_ffi", pytest.param("torch", marks=pytest.mark.long)])
def test_functions_are_found_in_each_way_and_give_numbers_in_both_bindings(tmp_path: Path, bind: str) -> None:
    text = delivered(PROBLEM + KERNEL, Problem("all", PROBLEM, "cpu"), description(), bind)
    (tmp_path / "best_kernel.py").write_text(text)
    script = """
import torch, best_kernel
print(float(best_kernel.ModelNew(256)(torch.randn(64, 256), 0.25).min()))
try: best_kernel.kernel["fill"](torch.ones(3).double(), 1.0)
except Exception as fault: print("float32 alone" in str(fault))
"""
    assert ran(tmp_path, script) == ["16384 1.5 True None int float bool NoneType", "0.75", "True"]
