"""What is measured once in a while can still be measured."""

import contextlib
import importlib
import io
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.deck import valued
from benchmarks.kernelbench_script import stand_ins
from benchmarks.serving import CANNOT
from tests.support.paths import ROOT

APART = {"kernelbench_one", "clients.legacy"}
"""Children that run beside packages of others."""
FILES = {
    ".".join(path.relative_to(ROOT / "benchmarks").with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "benchmarks").rglob("*.py"))
    if path.parent.name != "prompt_problems"
}
PROGRAMS = sorted({name for name, path in FILES.items() if '"__main__"' in path.read_text()} - {"clients.legacy"})


@pytest.mark.parametrize("name", sorted(FILES.keys() - APART))
def test_a_benchmark_can_be_imported(name: str) -> None:
    importlib.import_module(f"benchmarks.{name}".removesuffix(".__init__"))


def ran(name: str, monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[object, str, str]:
    """The exit code of `python -m benchmarks.NAME WORD ...`, and what it prints on stdout and stderr."""
    monkeypatch.setattr(sys, "argv", [name, *words])
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
        runpy.run_path(str(FILES[name]), run_name="__main__")
    return ended.value.code, out.getvalue(), err.getvalue()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_benchmark_has_the_options_that_its_docstring_names(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    code, said, _ = ran(name, monkeypatch, "--help")
    usage = said.partition("\n\n")[0]
    module = importlib.import_module(f"benchmarks.{name}")
    called = re.findall(rf"benchmarks\.{name.partition('.')[0]}((?: [^\n`&]*|\n +[^\n`&]*)*)", module.__doc__ or "")
    assert code == 0 and set(re.findall(r"--[a-z-]+", " ".join(called))) <= set(re.findall(r"--[a-z-]+", usage))


NEED = {
    "ablation": ("--target", "cuda"),
    "deck": ("DECK",),
    "delivery": (),
    "diseases.__main__": (),
    "examples": ("--target", "cuda"),
    "judge_throughput": (),
    "kernelbench_script": ("CHECKOUT", "KERNELS"),
    "kernelbench_sizes": ("CHECKOUT",),
    "pool_scaling": ("PATH",),
    "products": (),
    "same_against_same": (),
    "versus_kernelbench": ("--kernelbench", "CHECKOUT"),
}
"""What measures on a GPU, and how little it can be called with."""


@pytest.mark.parametrize("name", NEED)
def test_a_benchmark_without_its_device_says_so(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    sentence = "this benchmark needs the target 'cuda', which is not available here: no CUDA device is visible\n"
    assert ran(name, monkeypatch, *NEED[name]) == (CANNOT, "", sentence)


def test_a_decks_formula_is_read_as_sums_and_products_alone() -> None:
    sizes = {"M": 2.0, "K": 6.0}
    assert valued("M*K + (K/2)*M", sizes) == 18
    for other in ("M ** K", "print(M)", "M * N"):
        with pytest.raises(ValueError, match="no sum of products of M, K"):
            valued(other, sizes)


USES = """
import no_such
from no_such.inner import Thing
@no_such.App("x").cls(retries=Thing(1).more)
class Left: ...
with no_such.bar(total=1) as bar:
    bar.update(1)
print("ran")
"""


def test_an_empty_package_stands_in_for_what_is_missing_and_that_alone(tmp_path: Path) -> None:
    assert stand_ins(tmp_path, ["no_such.inner", "json.tool"]) == ["no_such.inner"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", USES], capture_output=True, text=True, env=environment)
    assert done.stdout == "ran\n", done.stderr
