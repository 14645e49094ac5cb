"""What is measured once in a while can still be measured."""

import ast
import contextlib
import importlib
import io
import json
import os
import re
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import arms, first_ideas, plan_bytes
from benchmarks.deck import deck_limit, valued
from benchmarks.kernelbench_script import narrowed, stand_ins
from benchmarks.serving import CANNOT
from kernel_agent.proposers.templates.graph import parse
from tests.support.paths import ROOT
from tests.support.scripted_run import MODEL
from tests.support.trees import tree_of

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
    "arms": ("CHECKOUT",),
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
    monkeypatch.setenv("PATH", "")
    sentence = "this benchmark needs the target 'cuda', which is not available here: no CUDA device is visible\n"
    assert ran(name, monkeypatch, *NEED[name]) == (CANNOT, "", sentence)


def test_the_kernels_of_the_arms_are_modules_each_of_its_place() -> None:
    rows = arms.rows_of(arms.KERNELS)
    assert len({arms.place(row) for row in rows}) == len(rows) > 70
    for row in rows:
        assert "ModelNew" in {node.name for node in ast.parse(row["source"]).body if isinstance(node, ast.ClassDef)}


def test_arms_are_compared_by_the_best_of_each_round() -> None:
    def row(arm: str, round: int, us: float | None) -> arms.Row:
        found = {"problem": "2/9", "draw": "A", "arm": arm, "round": round, "title": f"{arm} {us}", "us": us}
        return found | ({"status": "passed", "speedup": 2.0} if us else {"status": "wrong"})

    told = arms.text_of([row("full", 1, 100.0), row("full", 1, 80.0), row("full", 2, 50.0), row("noprof", 2, 75.0)])
    assert "Right at the first try: 4 of 4." in told and "| 2/9 | A | 80, 50 | 75 |" in told
    assert "noprof over full, round 2: 1.50 of 1 pairs" in told and "nopass over" not in told
    assert "| 2/9 | A | - |" in arms.text_of([row("best", 1, None)])


def test_a_decks_formula_is_read_as_sums_and_products_alone() -> None:
    sizes = {"M": 2.0, "K": 6.0}
    assert valued("M*K + (K/2)*M", sizes) == 18
    assert valued("(K+95)//96", sizes) == 1
    for other in ("M ** K", "print(M)", "M * N"):
        with pytest.raises(ValueError, match="no sum of products of M, K"):
            valued(other, sizes)
    assert deck_limit({"name": "without formulas"}, "M = 2") is None


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


def test_the_script_sees_the_problems_that_there_are_kernels_for(tmp_path: Path) -> None:
    checkout, kernels = tmp_path / "checkout", tmp_path / "level1"
    for number in (1, 11, 12):
        (checkout / "KernelBench" / "level1").mkdir(parents=True, exist_ok=True)
        (checkout / "KernelBench" / "level1" / f"{number}_Some.py").touch()
    kernels.mkdir()
    (kernels / "level_1_problem_11_sample_0_kernel.py").touch()
    copy = narrowed(checkout, kernels, tmp_path / "copy")
    assert [path.name for path in copy.rglob("*.py")] == ["11_Some.py"]
    assert len(list(checkout.rglob("*.py"))) == 3


HOLDS = """
import os, signal
held = os.open({fifo!r}, os.O_WRONLY)
if os.fork() == 0:
    os.setsid()
os.write(held, b"x")
signal.pause()
"""
"""A program and a process that it leaves in a session of its own; both hold a pipe until they are gone."""

STARTS = {
    "kernelbench_script": "kernelbench_script.scored(place, place / 'level1', [])",
    "versus_kernelbench": "versus_kernelbench.theirs(place, '', '', 'cuda')",
    "delivery": "delivery.optimized(place / 'problem.py', 'cpu', place, '')",
}


@pytest.mark.timeout(90)
@pytest.mark.parametrize(
    ("name", "by"),
    [*((name, signal.SIGTERM) for name in STARTS), ("kernelbench_script", signal.SIGINT), ("delivery", signal.SIGKILL)],
)
def test_a_killed_benchmark_leaves_no_process(tmp_path: Path, name: str, by: signal.Signals) -> None:
    os.mkfifo(fifo := tmp_path / "held")
    for file in ("scripts/eval_from_generations.py", "src/kernelbench/eval.py", "server.py"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(HOLDS.format(fifo=str(fifo)))
    (tmp_path / "problem.py").write_text(MODEL)
    given = {"KERNEL_AGENT_MCP_SERVER_PATH": f"python {tmp_path / 'server.py'}", "TMPDIR": str(tmp_path)}
    start = f"import asyncio, pathlib; from benchmarks import {name}; place = pathlib.Path({str(tmp_path)!r})"
    code = f"{start}; asyncio.run({STARTS[name]})"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=ROOT, env=os.environ | given) as benchmark, fifo.open("rb", buffering=0) as held:
        assert held.read(1) + held.read(1) == b"xx"
        benchmark.send_signal(by)
        assert held.read() == b""  # once nobody holds the other end


ALONE = {
    "clients.__main__": "served",
    "delivery": "gpus",
    "first_ideas": "_build_device load_inline",
    "kernelbench_sizes": "card_of",
    "retrieval": "_run",
    "serving": "_card _commit",
}
"""The functions that start what ends with them, by a word of its own or at once."""


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_benchmark_starts_programs_that_end_with_it(name: str) -> None:
    starters = [
        function.name
        for function in ast.walk(tree_of(FILES[name]))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        if re.search(r"subprocess\.\w+\(|create_subprocess|os\.(system|fork|spawn)", ast.unparse(function))
    ]
    assert starters == ALONE.get(name, "").split()


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
