"""The templates cover what they say, write kernels that are right, and refuse the rest by name."""

from __future__ import annotations

import ast
import ctypes
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest
import tvm_ffi.libinfo

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.templates.proposer import Templates, cut
from kernel_agent.proposers.templates.strides import broadcast, compose_from, normal, split
from kernel_agent.proposers.templates.transposed import Transposed, transposed
from kernel_agent.run.brief import Brief, Outcome
from kernel_agent.run.tree import own_title
from kernel_agent.run.types import Description, Device, Idea, Problem, Status, Trial
from rag.documents.page import parse
from tests.support.edits import edit
from tests.support.emitted import compiled_by_nvcc, on_cpu
from tests.support.paths import ROOT

HERE = Path(__file__).parent / "templates"
KERNELS = ROOT / "corpus" / "kernels"
COVERED: dict[str, Any] = json.loads((HERE / "covered.json").read_text())
REFUSED: dict[str, Any] = json.loads((HERE / "refused.json").read_text())
CPU = Device("cpu", "a processor", "x86_64-avx2", 1, 20.0)
GPU = Device("cuda", "a GPU", "sm_90", 0, 2600.0)


def described(graph: Any, device: Device) -> Description:
    return Description(device, graph, None, 1.0, 1.0, None, {})


def first_brief(case: dict[str, Any], device: Device) -> Brief:
    problem = Problem("case", case["source"], device.target)
    return Brief(problem, described(case["graph"], device), 1, Trial(None, 0, 0, None, case["source"]), None, None)


async def written(case: dict[str, Any], device: Device, which: int) -> str:
    """The candidate of the first round's idea number `which`, or of the last where there are fewer."""
    brief = first_brief(case, device)
    templates = Templates(brief.description)
    ideas = await templates.ideas(brief, which + 1)
    return await templates.write(brief, ideas[-1], 0)


def judged(tmp_path: Path, candidates: dict[str, str]) -> dict[str, str]:
    """What is wrong with the candidates, by name."""
    cases = [{"name": n, "source": COVERED[n]["source"], "candidate": c} for n, c in candidates.items()]
    environment = os.environ | {"TVM_FFI_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, str(HERE / "judge.py")],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        env=environment,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("part", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, 6))])
async def test_cpp_kernels_equal_pytorch(tmp_path: Path, part: int) -> None:
    numbered = [*enumerate(COVERED.items())][part::6]
    candidates = {name: await written(case, CPU, n % 4) for n, (name, case) in numbered}
    assert judged(tmp_path, candidates) == {}


@pytest.mark.long
async def test_cuda_kernels_equal_pytorch_when_threads_are_emulated(tmp_path: Path) -> None:
    names = ["arithmetic", "softmaxes", "norms", "reductions", "one_row", "groups", "half", "columns"]
    candidates = {name: on_cpu(await written(COVERED[name], GPU, n % 6)) for n, name in enumerate(names)}
    assert judged(tmp_path, candidates) == {}


@pytest.mark.long
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("name", ["activations", "softmaxes", "norms", "gates", "half"])
async def test_cuda_kernels_compile_without_spills(tmp_path: Path, name: str) -> None:
    candidate = await written(COVERED[name], GPU, 0)
    source = tmp_path / "kernel.cu"
    source.write_text(re.search(r'_source = r"""\n(.*?)"""', candidate, re.DOTALL)[1])  # type: ignore[index]
    assert set(re.findall(r"\d+ bytes spill stores", compiled_by_nvcc(source))) == {"0 bytes spill stores"}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_template_covers_is_refused_by_its_operator(name: str) -> None:
    templates, regions = cut(described(REFUSED[name]["graph"], CPU))
    assert templates is None and re.search(rf"aten\.{name}\b", regions.account)


async def test_keywords_keep_their_names_and_come_last() -> None:
    case = COVERED["gates"]
    assert "def forward(self, x, y):" in await written(case, CPU, 0)
    renamed = json.loads(
        edit(edit(json.dumps(case), '"name": "x"', '"name": "in0"'), '"node": "x"', '"node": "in0"', times=3)
    )
    renamed["graph"]["keywords"] = ["y"]
    assert "def forward(self, argument0, y):" in await written(renamed, CPU, 0)


def test_containers_among_the_inputs_are_refused() -> None:
    graph = COVERED["gates"]["graph"] | {"input_structure": "mixed"}
    with pytest.raises(NotCovered, match=r"this module takes containers of them\."):
        Templates(described(graph, CPU))


def test_a_block_in_a_mode_of_its_own_is_refused() -> None:
    graph = json.loads(json.dumps(COVERED["gates"]["graph"]))
    call = {"name": "own", "op": "torch.ops.higher_order.wrap_with_autocast", "args": ["cuda", {"node": "submod_3"}]}
    graph["nodes"].append({**call, "kwargs": {}, "outputs": graph["nodes"][-1]["outputs"]})
    with pytest.raises(NotCovered, match=r"such as autocast: wrap_with_autocast\."):
        Templates(described(graph, CPU))


@pytest.mark.parametrize("structure", ["mixed", "dict", "namedtuple"])
def test_outputs_that_are_not_tensors_alone_are_refused(structure: str) -> None:
    graph = COVERED["softmaxes"]["graph"] | {"output_structure": structure}
    with pytest.raises(NotCovered, match=f"output is {structure}"):
        Templates(described(graph, CPU))


def test_a_module_without_a_graph_is_refused_in_one_sentence_that_says_why() -> None:
    untraced = replace(described(None, CPU), graph_error="torch.export cannot trace it: data-dependent\nbranching")
    templates, regions = cut(untraced)
    assert templates is None and not regions.covers
    assert regions.account == "torch.export cannot trace it: data-dependent branching"


def test_a_target_that_no_template_is_written_for_is_not_covered() -> None:
    case = next(iter(COVERED.values()))
    device = Device("triton", "a GPU", "sm_90", 0, 2600.0)
    with pytest.raises(NotCovered, match=r"templates are written for cpu and cuda, not for triton\."):
        Templates(described(case["graph"], device))


@pytest.mark.parametrize("device", [CPU, GPU], ids=["cpu", "cuda"])
@pytest.mark.parametrize("name", ["softmaxes", "arithmetic"])
async def test_ideas_are_distinct_and_the_same_each_time(name: str, device: Device) -> None:
    brief = first_brief(COVERED[name], device)
    templates = Templates(brief.description)
    ideas = await templates.ideas(brief, 8)
    assert len({json.dumps(dict(idea.change or {})) for idea in ideas}) == 8
    assert ideas == await Templates(brief.description).ideas(brief, 8)
    assert all(idea.title and "GB/s" in idea.reasoning for idea in ideas)
    sources = [await templates.write(brief, idea, attempt) for idea in ideas for attempt in range(2)]
    assert len(set(sources)) == 16


@pytest.mark.parametrize("device", [CPU, GPU], ids=["cpu", "cuda"])
async def test_later_ideas_depart_from_the_parent_and_from_what_was_tried(device: Device) -> None:
    brief, templates = later_brief(device)
    ideas = await templates.ideas(brief, 6)
    tried = {outcome.title for outcome in (*brief.siblings, *brief.ancestors)}
    assert len(ideas) == 6
    assert not tried & {idea.title for idea in ideas}
    assert brief.parent.source not in [await templates.write(brief, idea, 0) for idea in ideas]
    elsewhere = replace(brief, parent=replace(brief.parent, attempt=0))
    assert ideas != await templates.ideas(elsewhere, 6)


def later_brief(device: Device) -> tuple[Brief, Templates]:
    """A second round's brief: the parent is the first idea's second attempt, three siblings were slower."""
    case = COVERED["softmaxes"]
    first = first_brief(case, device)
    templates = Templates(first.description)
    space = templates._space
    ideas = [
        Idea(str(n), 1, first.parent.id, space.title(genes), "", genes) for n, genes in enumerate(space.starts[:4])
    ]
    outcomes = tuple(Outcome(idea.title, Status.PASSED, 3.0 - n) for n, idea in enumerate(ideas[:2]))
    failed = tuple(Outcome(idea.title, Status.BUILD_ERROR, None) for idea in ideas[2:])
    parent = Trial(ideas[0].id, 1, 0, first.parent.id, "")
    brief = replace(first, round=2, parent=parent, parent_idea=ideas[0])
    return replace(brief, siblings=outcomes[1:] + failed, ancestors=outcomes[:1]), templates


async def test_what_made_siblings_faster_is_tried_first() -> None:
    brief, templates = later_brief(CPU)
    assert brief.parent_idea is not None
    better = {**(brief.parent_idea.change or {}), "store": "stream"}
    title = templates._space.title(better)
    promising = replace(brief, siblings=(Outcome(title, Status.PASSED, 9.0),))
    ideas = await templates.ideas(promising, 4)
    assert all(idea.change is not None and idea.change["store"] == "stream" for idea in ideas)


async def test_a_candidate_is_the_problem_with_one_more_class() -> None:
    case = COVERED["norms"]
    candidate = await written(case, CPU, 0)
    assert candidate.startswith(case["source"].rstrip())
    classes = {node.name: node for node in ast.parse(candidate).body if isinstance(node, ast.ClassDef)}
    methods = [item.name for item in classes["ModelNew"].body if isinstance(item, ast.FunctionDef)]
    assert methods == ["forward"]
    assert re.search(r"^BLOCK = \d+  # tune: \d+(, \d+)+$", candidate, re.MULTILINE)


@pytest.mark.parametrize("device", [CPU, GPU], ids=["cpu", "cuda"])
async def test_each_attempt_says_the_title_of_its_own_genes(device: Device) -> None:
    brief = first_brief(COVERED["softmaxes"], device)
    templates = Templates(brief.description)
    (idea,) = await templates.ideas(brief, 1)
    titles = []
    for attempt in range(2):
        trial = Trial(idea.id, attempt, 0, brief.parent.id, await templates.write(brief, idea, attempt))
        titles.append(own_title(idea, trial))
    assert titles == [templates._space.title(genes) for genes in templates._space.variants(idea.change or {})[:2]]
    assert titles[0] == idea.title != titles[1]


async def test_names_of_the_problem_are_left_alone() -> None:
    case = {**COVERED["loss"], "source": COVERED["loss"]["source"] + "\n\nBLOCK = 7\nkernel = _kernel = None\n"}
    candidate = await written(case, CPU, 0)
    assert "BLOCK = 7\n" in candidate
    assert "\nBLOCK_ = 1024  # tune" in candidate
    assert "_kernel__source" in candidate


def test_a_chain_of_any_length_is_one_kernel() -> None:
    graph = {
        "inputs": [{"name": "x", "shape": [8], "dtype": "float32", "strides": [1]}],
        "parameters": [],
        "nodes": [
            {
                "name": f"n{i}",
                "op": "aten.add.Tensor",
                "args": [{"node": f"n{i - 1}" if i else "x"}, i],
                "kwargs": {},
                "outputs": [{"shape": [8], "dtype": "float32"}],
            }
            for i in range(3000)
        ],
        "outputs": ["n2999"],
    }
    assert len(Templates(described(graph, CPU))._work.program.terms) == 6001


@pytest.mark.parametrize("path", sorted(KERNELS.glob("*/*.*")), ids=lambda p: f"{p.parent.name}/{p.name}")
def test_corpus_kernels_say_what_they_are(path: Path) -> None:
    page = parse(path.relative_to(KERNELS.parent).as_posix(), path.read_text())
    assert page.title and page.archs and page.families and page.bottlenecks
    assert page.languages == (("cuda",) if path.suffix == ".cu" else ("cpp",))


@pytest.mark.long
def test_corpus_kernels_compile(tmp_path: Path) -> None:
    flags = [
        "-std=c++17",
        "-O0",
        "-march=native",
        "-fopenmp",
        "-fsyntax-only",
        f"-I{tvm_ffi.libinfo.find_include_path()}",
    ]
    for path in sorted(KERNELS.glob("*/*.cpp")):
        done = subprocess.run(["g++", *flags, str(path)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


@pytest.mark.long
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("path", sorted(KERNELS.glob("*/*.cu")), ids=lambda p: f"{p.parent.name}/{p.name}")
def test_corpus_kernels_compile_for_a_gpu(path: Path) -> None:
    compiled_by_nvcc(path, "sm_90a")


def test_work_that_reads_across_its_output_is_found_with_what_reads_beside_it() -> None:
    last, first, by_channel = ((2, 60), (4, 1), (15, 4)), ((120, 1),), ((2, 0), (4, 1), (15, 0))
    found = transposed({0: first, 1: last, 2: by_channel}, 120)
    assert found == Transposed(2, 4, 15, (1,))
    assert found.parts(by_channel) == (((2, 0),), ((4, 1),), ((15, 0),))
    assert transposed({0: first, 2: by_channel}, 120) is None


def test_index_maps() -> None:
    rows = broadcast((4, 1), (4, 6))
    assert rows == ((4, 1), (6, 0))
    assert broadcast((4, 6), (4, 6)) == ((24, 1),)
    assert broadcast((6,), (4, 6)) == ((4, 0), (6, 1))
    assert split(broadcast((2, 1, 6), (2, 3, 6)), 6) == (((2, 6), (3, 0)), ((6, 1),))
    assert split(((24, 1),), 5) is None
    assert compose_from(rows, 0, broadcast((1,), (4,))) == (((24, 0),), 0)
    assert compose_from(((24, 1),), 0, normal([(4, 1), (6, 4)])) == (((4, 1), (6, 4)), 0)


@pytest.mark.parametrize("outer", [((6, 1),), ((4, 0), (6, 1)), ((2, 3), (5, 0), (3, 1))])
def test_composed_maps_go_where_both_steps_go(outer: tuple[tuple[int, int], ...]) -> None:
    inner = normal([(2, 1), (3, 2)])
    found = compose_from(outer, 0, inner)
    assert found and found[1] == 0
    together = found[0]
    points = 1
    for size, _ in outer:
        points *= size
    assert [at(together, i) for i in range(points)] == [at(inner, at(outer, i)) for i in range(points)]


def at(pattern: tuple[tuple[int, int], ...], i: int) -> int:
    total = 0
    for size, stride in reversed(pattern):
        total, i = total + i % size * stride, i // size
    return total


UNITS: dict[str, tuple[Callable[[float], float], float, float, int]] = {
    "k_exp": (math.exp, -87.0, 88.0, 2),
    "k_expm1": (math.expm1, -20.0, 88.0, 2),
    "k_log": (math.log, 1e-30, 1e4, 2),
    "k_log1p": (math.log1p, -0.999, 1e4, 3),
    "k_tanh": (math.tanh, -12.0, 12.0, 3),
    "k_erf": (math.erf, -6.0, 6.0, 6),
}


def test_elementary_functions_keep_to_the_ulps_that_they_state(tmp_path: Path) -> None:
    source = (KERNELS / "math" / "level_01.cpp").read_text()
    functions = source[source.index("//@begin k_bits") : source.index("//@begin k_rsqrt")]
    loops = "".join(
        f'extern "C" void {name}_all(const float* in, float* out, int n) {{\n'
        f"#pragma omp simd\n  for (int i = 0; i < n; ++i) out[i] = {name}(in[i]);\n}}\n"
        for name in UNITS
    )
    (tmp_path / "math.cpp").write_text(f"#include <cmath>\n#include <cstdint>\n#include <cstring>\n{functions}{loops}")
    flags = ["-O3", "-march=native", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC"]
    subprocess.run(["g++", *flags, "math.cpp", "-o", "math.so"], cwd=tmp_path, check=True)
    library = ctypes.CDLL(str(tmp_path / "math.so"))
    for name, (exact, low, high, units) in UNITS.items():
        tame = numpy.linspace(low, high, 50_000)
        near_zero = numpy.geomspace(1e-30, 1.0, 50_000)
        given = numpy.concatenate([tame, near_zero]).astype(numpy.float32)
        got = numpy.empty_like(given)
        loop = getattr(library, f"{name}_all")
        loop(given.ctypes.data_as(ctypes.c_void_p), got.ctypes.data_as(ctypes.c_void_p), given.size)
        want = numpy.array([exact(x) for x in given.tolist()])
        unit = numpy.spacing(numpy.abs(want).astype(numpy.float32)).astype(numpy.float64)
        worst = numpy.max(numpy.abs(got - want) / unit)
        assert worst <= units, f"{name}: {worst:.2f} units in the last place"
