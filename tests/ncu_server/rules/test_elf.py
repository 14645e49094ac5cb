"""Reading what a shared library asks of others, on real libraries."""

import subprocess
from pathlib import Path

import pytest

from ncu_server.rules.elf import read_symbols


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("elf")
    (place / "a.c").write_text(
        "extern void cblas_sgemm(void); double sqrt(double);\nvoid run(void) { cblas_sgemm(); }\n"
    )
    subprocess.run(["cc", "-shared", "-fPIC", "a.c", "-o", "a.so", "-Wl,--no-as-needed", "-lm"], cwd=place, check=True)
    return place / "a.so"


def test_undefined_symbols_and_needed_libraries_are_found(library: Path) -> None:
    found = read_symbols(library)
    assert "cblas_sgemm" in found.symbols
    assert "run" not in found.symbols
    assert any(name.startswith("libm.so") for name in found.libraries)


def test_a_stripped_library_tells_the_same(library: Path) -> None:
    before = read_symbols(library)
    subprocess.run(["strip", str(library)], check=True)
    assert read_symbols(library) == before


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\n", b"\x7fELF\x02\x01", b"\x7fELF\x02\x01" + b"\xff" * 200])
def test_what_is_no_library_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.so").write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.so"):
        read_symbols(tmp_path / "x.so")
