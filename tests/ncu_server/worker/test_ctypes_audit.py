"""What is heard of ctypes, in this process: the hook stays, as it does in a candidate's."""

import ctypes
import os
from pathlib import Path

import torch
import tvm_ffi

from ncu_server.worker.authorship.ctypes_audit import Opened

BUILT, OTHER = Path(tvm_ffi.core.__file__), Path(torch._C.__file__)


def test_a_library_that_the_build_did_not_make_is_named_with_its_functions(tmp_path: Path) -> None:
    opened = Opened()
    opened.listen()
    (tmp_path / "libm.so.6").symlink_to(OTHER)
    (tmp_path / "alias.so").symlink_to(BUILT)
    for name in (BUILT, tmp_path / "alias.so", "libm.so.6", tmp_path / "libm.so.6"):
        ctypes.CDLL(os.fspath(name))
    assert hasattr(ctypes.CDLL(None), "malloc")
    assert hasattr(ctypes.CDLL("libm.so.6"), "cosf")
    told = opened.found([os.fspath(BUILT)])
    assert told == {"opened": ["libm.so.6", "the process itself"], "named": ["cosf", "malloc"]}
