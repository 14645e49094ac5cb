"""What is measured once in a while can still be measured."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import first_ideas, plan_bytes
from benchmarks.deck import valued
from benchmarks.kernelbench_script import stand_ins
from kernel_agent.proposers.templates.graph import parse
from tests.support.paths import ROOT

APART = {"kernelbench_one", "clients.legacy"}
"""Children that run beside packages of others."""
FILES = sorted((ROOT / "benchmarks").rglob("*.py"))
NAMES = {".".join(path.relative_to(ROOT / "benchmarks").with_suffix("").parts) for path in FILES}


@pytest.mark.parametrize("name", sorted(name for name in NAMES - APART if not name.startswith("prompt_problems")))
def test_a_benchmark_can_be_imported(name: str) -> None:
    importlib.import_module(f"benchmarks.{name}".removesuffix(".__init__"))


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


def test_bytes_of_a_module_call_by_call_and_with_all_that_can_be_fused() -> None:
    graphs = json.loads((ROOT / "tests/kernel_agent/proposers/regions/graphs.json").read_text())
    found = plan_bytes.bounds(parse(graphs["conv_tail"]))
    given, made = 4 * 2 * 3 * 12 * 12, 4 * 2 * 8 * 10 * 10
    weights, bias = 4 * (8 * 3 * 3 * 3 + 8), 4 * 8
    assert found["own"] == given + weights + bias + made
    assert found["fused"] == given + weights + made + made + bias + made
    assert found["eager"] == given + weights + 7 * made + bias + 2 * (given + made)


def test_spills_and_warnings_are_read_of_what_the_compiler_prints() -> None:
    said = """ptxas info    : Compiling entry function '_Z1kv' for 'sm_90a'
ptxas info    : Function properties for _Z1kv
    64 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 148 registers, used 1 barriers
a.cu(3): warning #177-D: variable "x" was declared but never referenced
nvcc warning : incompatible redefinition for option 'optimize', the last value of this option was used
"""
    found = first_ideas.ptxas(said)
    assert found["spills"] == {"_Z1kv": [64, 8, 4]} and found["registers"] == 148
    assert found["warnings"] == ['a.cu(3): warning #177-D: variable "x" was declared but never referenced']
