"""Torch's own binding in place of tvm_ffi's: what it replaces, what it has, and what it refuses by name."""

from __future__ import annotations

import pytest

from kernel_agent.delivery.binding import bound
from kernel_agent.errors import UsageError

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


def test_what_the_other_binding_does_not_have_is_named() -> None:
    with pytest.raises(UsageError, match=r"imports tvm_ffi\.dtype, which torch's binding has no counterpart of"):
        bound("from tvm_ffi import dtype")
