"""What compilers said, as data: read on what gcc, nvcc, ptxas and the linker really said."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ncu_server.compiler.diagnostics import LONGEST_LINE, LONGEST_TEXT, MOST_NOTES, NOTED, diagnostics
from ncu_server.wire.compilation import Diagnostic

LOGS = Path(__file__).parent / "logs"


def errors(name: str) -> list[Diagnostic]:
    log, source = ((LOGS / f"{name}{suffix}").read_text() for suffix in (".log", ".py.txt"))
    return [said for said in diagnostics(log, source) if said.severity == "error"]


def pointed(name: str) -> list[str]:
    """The candidate's own lines that the errors point at."""
    lines = (LOGS / f"{name}.py.txt").read_text().split("\n")
    return [lines[said.candidate_line - 1].strip() for said in errors(name) if said.candidate_line]


def test_an_error_of_nvcc_points_at_the_candidate_s_own_line() -> None:
    first, _, last = errors("nvcc_undeclared")
    assert (first.text, first.file, first.line) == ('identifier "count" is undefined', "cuda.cu", 13)
    assert pointed("nvcc_undeclared") == [*["if (i < count) out[i] = x[i] * factor;"] * 2, "out[i] = v.x;"]
    assert last.source == "out[i] = v.x;" and not last.notes


def test_a_line_that_a_macro_changed_is_found_by_its_distance_from_the_others() -> None:
    first, second, _ = errors("nvcc_template")
    assert second.source == 'static_assert(256 % 96 == 0, "BLOCK must be a multiple of 96");'
    assert [row.split("(")[0] for row in pointed("nvcc_template")] == [
        "out[threadIdx.x] = reduce<float, 4>",
        "static_assert",
        "rows<<<1, BLOCK>>>",
    ]
    assert first.source == "out[threadIdx.x] = reduce<float, 4>(v) + reduce(w);", "what nvcc says of it comes before"
    assert any('note #3326-D: function template "reduce" does not match' in note for note in first.notes)


def test_notes_of_gcc_and_the_use_of_a_template_stay_with_their_error() -> None:
    first, second = errors("gcc_template")
    assert any("deduced conflicting types" in note for note in first.notes)
    assert second.notes[-1] == "main.cpp:17:23:   required from here"
    assert not any("^" in note for said in (first, second) for note in said.notes)
    assert len(pointed("gcc_template")) == 2


def test_what_has_no_line_is_data_too() -> None:
    (said,) = errors("ptxas_shared")
    assert said.text.startswith("Entry function '_Z4rowsPKfPf' uses too much shared data") and said.line is None


def test_what_gcc_ptxas_and_the_linker_say_is_read() -> None:
    log = (
        "cuda.cu:12:5: error: 'x' was not declared in this scope\n   12 |   x = 1;\n      |   ^\n"
        "ptxas /tmp/t.ptx, line 25; error   : Not a name of any known instruction: 'nonsense'\n"
        "nvcc fatal   : Unsupported gpu architecture 'sm_10'\n"
        "main.cpp:(.text+0x4): undefined reference to `rows(float*)'\n"
        "ninja: build stopped: subcommand failed.\n"
    )
    gcc, ptxas, fatal, linker = diagnostics(log)
    assert (gcc.file, gcc.line, gcc.source) == ("cuda.cu", 12, "x = 1;")
    assert (ptxas.file, ptxas.line) == ("t.ptx", 25) and fatal.severity == "error" and fatal.line is None
    assert linker.text.endswith("undefined reference to `rows(float*)'") and not linker.notes


@pytest.mark.parametrize("log", ["", "\n\n", "z" * 100_000, "a(1): error: " + "b" * 50_000, "e\0", "^\n" * 9])
def test_any_text_is_cut_to_a_bound(log: str) -> None:
    many = "".join(f"a.cu({n}): error: no {n}\n" + f"a.cu({n}): note: {log}\n" * 20 for n in range(1, 9))
    for said in (*diagnostics(log, "a\nb"), *(found := diagnostics(many, "a\nb"))):
        assert len(said.text) <= LONGEST_TEXT + 3 and len(said.notes) <= MOST_NOTES
        assert all(len(note) <= LONGEST_LINE + 3 for note in said.notes)
    assert not any(said.notes for said in found[NOTED:])


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_the_compiler_of_this_machine_is_understood(tmp_path: Path) -> None:
    code = "#include <cstdint>\nvoid run(float* x) {\n  for (int64_t i = 0; i < size; ++i) x[i] = 0;\n}\n"
    (tmp_path / "main.cpp").write_text("// a header of others\n" * 7 + code)
    done = subprocess.run(["g++", "-c", "main.cpp"], cwd=tmp_path, capture_output=True, text=True)
    (said, *_) = diagnostics(done.stderr, f'import torch\n\nSOURCE = r"""\n{code}"""\n')
    assert "size" in said.text and said.source == "for (int64_t i = 0; i < size; ++i) x[i] = 0;"
    assert said.candidate_line == 6
