"""Macros of a candidate's flags that would rewrite the headers above its source."""

import subprocess
from pathlib import Path

import pytest
from tvm_ffi.libinfo import find_include_path

from ncu_server.worker.building import macros

HEADERS = "#include <tvm/ffi/container/tensor.h>\n#include <tvm/ffi/function.h>\n"


def compiles(flag: str, tmp_path: Path) -> bool:
    source = tmp_path / "main.cc"
    source.write_text(HEADERS)
    command = ["g++", "-std=c++17", "-fsyntax-only", f"-I{find_include_path()}", flag, str(source)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("flag", "name"), [("-DR=4", "R"), ("-D W=8", "W"), ("-Dsize=3", "size"), ("-DTensorView", "TensorView")]
)
def test_a_macro_that_would_rewrite_the_headers_is_refused(flag: str, name: str) -> None:
    with pytest.raises(macros.HeaderMacro, match=f"-D{name} would rewrite {name} .* a name of two words"):
        macros.refuse(["-O3", "-DROWS=4", flag])


def test_what_is_refused_is_what_the_compiler_could_not_have(tmp_path: Path) -> None:
    assert not compiles("-DR=4", tmp_path) and not compiles("-Dsize=3", tmp_path)
    assert compiles("-DROWS=4", tmp_path)


@pytest.mark.parametrize("flag", ["-DROWS=4", "-DNDEBUG", "-DTVM_FFI_BACKTRACE_ON_SEGFAULT=0", "-DROW_TILE=2", "-O3"])
def test_other_macros_are_let_through(flag: str) -> None:
    macros.refuse([flag, "-DCOLS=4096"])
