"""The shipped corpus: front matter, chunks, and snippets that compile."""

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from rag.corpus_path import CORPUS
from rag.documents.chunk import CAP, chunks, tokens
from rag.documents.page import Page, parse, problems
from rag.embeddings.local import PACKAGE, packaged_model
from rag.index import build, dense, shipped_vectors
from tests.support.paths import ROOT

FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INCLUDE = re.compile(r"^#include .*\n", re.MULTILINE)
DEFINE = re.compile(r"^#define (\w+)", re.MULTILINE)
TORCH = re.compile(r"^#include <(torch|ATen|c10)/", re.MULTILINE)
TOOLKIT = re.compile(r"^#include <(cu\w+\.h|cuda/.*)>", re.MULTILINE)
GPU = re.compile(r"sm_(\d+)a?(\+?)")
RUNS = "# Runs on the CPU"

WARNINGS = ["-Wall", "-Wno-unused-function", "-Werror"]
TORCH_ROOT = next(iter(getattr(importlib.util.find_spec("torch"), "submodule_search_locations", None) or ()), "")

needs_nvcc = pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc")
needs_gcc = pytest.mark.skipif(not shutil.which("g++"), reason="no g++")

HIP = """
#pragma once
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
using size_t = decltype(sizeof 0);
struct dim3 { unsigned x, y, z; };
extern __device__ const dim3 threadIdx, blockIdx, blockDim, gridDim;
constexpr int warpSize = 64;
__device__ void __syncthreads();
template <typename T> __device__ T __shfl(T, int, int = 64);
template <typename T> __device__ T __shfl_xor(T, int, int = 64);
template <typename T> __device__ T __shfl_down(T, unsigned, int = 64);
__device__ unsigned long long __ballot(int);
"""


@pytest.fixture(scope="module")
def pages() -> list[Page]:
    return [parse(path, data.decode()) for path, data in sorted(build.read().files.items())]


def docs(pages: list[Page]) -> list[Page]:
    return [page for page in pages if page.path.startswith("docs/")]


def test_front_matter_has_unique_ids_and_only_tags_of_the_closed_lists(pages: list[Page]) -> None:
    assert problems(pages) == []


def test_there_are_many_pages_of_300_to_900_words(pages: list[Page]) -> None:
    lengths = {page.id: len(page.body.split()) for page in docs(pages)}
    assert len(lengths) >= 60
    assert {name: n for name, n in lengths.items() if not 300 <= n <= 900} == {}


def test_every_page_has_a_snippet_and_no_fence_is_split(pages: list[Page]) -> None:
    for page in docs(pages):
        fences = [match[0] for match in FENCE.finditer(page.body)]
        assert fences, page.path
        texts = [chunk.text for chunk in chunks(page)]
        assert all(any(fence in text for text in texts) for fence in fences), page.path


def test_the_model_reads_every_chunk_of_the_corpus_whole(pages: list[Page]) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the packaged model is not installed")
    tokenizer = tokenizers.Tokenizer.from_file(str(Path(spec.submodule_search_locations[0]) / "model/tokenizer.json"))
    tokenizer.no_truncation()
    for page in pages:
        for chunk in chunks(page):
            real = len(tokenizer.encode(chunk.embedded).ids)
            assert real <= 256, (page.path, chunk.heading, real)
            assert tokens(chunk.embedded) <= CAP + 40  # one long line may pass the cap


def _fences(page: Page, language: str) -> list[tuple[int, str]]:
    """(line of the page's body, code) of each fenced block of a language; of CUDA also what Python holds in strings."""
    found = [match for match in FENCE.finditer(page.body) if match[1] == language]
    codes = [(page.body.count("\n", 0, match.start(2)) + 1, match[2]) for match in found]
    if language == "cuda":
        codes += [part for fence in _fences(page, "python") for part in _kernels(*fence)]
    return codes


def _kernels(line: int, python: str) -> list[tuple[int, str]]:
    texts = [node for node in ast.walk(ast.parse(python)) if isinstance(node, ast.Constant)]
    return [(line + t.lineno - 1, t.value) for t in texts if isinstance(t.value, str) and "__global__" in t.value]


def test_the_shipped_vectors_can_be_read_and_what_lacks_one_is_only_told(pages: list[Page]) -> None:
    found = packaged_model()
    if isinstance(found, str):
        pytest.skip(found)
    texts = {dense.key(c.embedded): f"{page.path}: {c.heading}" for page in pages for c in chunks(page)}
    held = shipped_vectors.read(shipped_vectors.file(CORPUS, found.id), texts)
    missing = sorted(set(texts) - set(held))
    if missing:
        print(f"{len(missing)} of {len(texts)} chunks are embedded at first use; `python -m rag vectors` mends it:")
        print("\n".join(texts[key] for key in missing))
    assert {len(vector) for vector in held.values()} <= {384 * 4}


def _together(pages: list[Page], language: str) -> str:
    """All snippets of a language as one source: includes first, each page in a namespace of its own."""
    found = [(page, line, code) for page in pages for line, code in _fences(page, language)]
    includes = sorted({line for _, _, code in found for line in INCLUDE.findall(code)})
    bodies = [
        f"namespace {re.sub('[^a-z0-9]', '_', page.id)}_{n} {{\n"
        f'#line {line} "body of {page.path}"\n{INCLUDE.sub(chr(10), code)}}}\n'
        + "".join(f"#undef {macro}\n" for macro in DEFINE.findall(code))
        for n, (page, line, code) in enumerate(found)
    ]
    return "".join(includes + bodies)


def _includes(page: Page, headers: re.Pattern[str], language: str) -> bool:
    return any(headers.search(code) for _, code in _fences(page, language))


def _nvcc_arch(page: Page) -> str:
    """What a page's snippets are compiled for: the oldest architecture of its own from sm_80 on, else sm_90.

    A feature of one architecture alone (`sm_90`, `sm_100`) is compiled for its `a` target ("90a"), which has all of it.
    """
    own = sorted((int(match[1]), match[2]) for arch in page.archs if (match := GPU.fullmatch(arch)))
    modern = [(number, plus) for number, plus in own if number >= 80]
    if not modern or own[0] < modern[0]:
        return "90"
    number, plus = modern[0]
    return f"{number}" if plus or number < 90 else f"{number}a"


def _compile(command: list[str], source: Path) -> None:
    result = subprocess.run([*command, source.name], cwd=source.parent, capture_output=True, text=True)
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stderr[:8000]}"


@pytest.mark.long
@pytest.mark.timeout(900)
@needs_nvcc
def test_cuda_snippets_compile_for_the_architecture_of_their_page(pages: list[Page], tmp_path: Path) -> None:
    groups: dict[str, list[Page]] = {}
    for page in docs(pages):
        if _fences(page, "cuda") and not _includes(page, TORCH, "cuda"):
            groups.setdefault(_nvcc_arch(page), []).append(page)
    assert groups
    for arch, group in groups.items():
        source = tmp_path / f"sm_{arch}.cu"
        source.write_text(_together(group, "cuda"))
        target = f"arch=compute_{arch},code=sm_{arch}"  # -arch=sm_90a would compile for compute_90 as well
        _compile(["nvcc", "-gencode", target, "-Werror=all-warnings", "-Xcompiler", "-O0", "-c"], source)


@needs_gcc
def test_cpp_snippets_compile(pages: list[Page], tmp_path: Path) -> None:
    plain = [page for page in docs(pages) if not _includes(page, TOOLKIT, "cpp")]
    source = tmp_path / "snippets.cpp"
    source.write_text(_together(plain, "cpp"))
    _compile(["g++", "-std=c++17", "-O2", "-fopenmp", *WARNINGS, "-c"], source)


@needs_nvcc
def test_cpp_snippets_that_use_the_toolkit_compile(pages: list[Page], tmp_path: Path) -> None:
    hosts = [page for page in docs(pages) if _includes(page, TOOLKIT, "cpp")]
    source = tmp_path / "snippets.cpp"
    source.write_text(_together(hosts, "cpp"))
    _compile(["nvcc", "-std=c++17", "-Xcompiler", ",".join(WARNINGS), "-c"], source)


@pytest.mark.long
@pytest.mark.timeout(900)
@needs_nvcc
@pytest.mark.skipif(not TORCH_ROOT, reason="no torch")
def test_cuda_snippets_that_use_torch_compile(pages: list[Page], tmp_path: Path) -> None:
    source = tmp_path / "snippets.cu"
    source.write_text(_together([page for page in docs(pages) if _includes(page, TORCH, "cuda")], "cuda"))
    implied = ["-include", "torch/types.h"]  # as load_inline does
    _compile(["nvcc", "-arch=sm_90", "-std=c++20", *_torch_includes(tmp_path), *implied, "-c"], source)


@pytest.mark.long
@pytest.mark.timeout(900)
@needs_nvcc
def test_skeletons_that_no_template_fills_in_compile(pages: list[Page], tmp_path: Path) -> None:
    libinfo = pytest.importorskip("tvm_ffi.libinfo")
    skeletons = [page for page in pages if page.path.endswith(".cu") and "//@begin" not in page.body]
    assert {page.path for page in skeletons} >= {f"kernels/{name}.cu" for name in ("gemm/level_06", "scan/level_03")}
    for page in skeletons:
        source = tmp_path / f"{re.sub('[^a-z0-9]', '_', page.id)}.cu"
        source.write_text((CORPUS / page.path).read_text())
        target = f"arch=compute_{_nvcc_arch(page)},code=sm_{_nvcc_arch(page)}"
        _compile(["nvcc", "-std=c++17", "-gencode", target, f"-I{libinfo.find_include_path()}", "-c"], source)


def _torch_includes(scratch: Path) -> list[str]:
    """The judge's slim headers before torch's own; a generated one that torch without CUDA lacks is left empty."""
    generated = scratch / "generated/c10/cuda/impl/cuda_cmake_macros.h"
    generated.parent.mkdir(parents=True)
    generated.touch()
    folders = [
        ROOT / "ncu_server/worker/slim",
        Path(TORCH_ROOT) / "include",
        Path(TORCH_ROOT) / "include/torch/csrc/api/include",
        Path(sysconfig.get_path("include")),
        scratch / "generated",
    ]
    return [*(f"-I{folder}" for folder in folders), "-DTORCH_EXTENSION_NAME=snippets"]


@pytest.mark.skipif(not shutil.which("clang++"), reason="no clang++")
def test_hip_snippets_are_valid(pages: list[Page], tmp_path: Path) -> None:
    shim = tmp_path / "hip/hip_runtime.h"
    shim.parent.mkdir()
    shim.write_text(HIP)
    source = tmp_path / "snippets.hip"
    source.write_text(_together(docs(pages), "hip"))
    flags = ["-x", "hip", "--offload-arch=gfx942", "-nogpuinc", "-nogpulib", "--cuda-device-only", "-fsyntax-only"]
    _compile(["clang++", "-std=c++17", "-Wall", "-Werror", f"-I{tmp_path}", *flags], source)


def test_python_snippets_are_valid(pages: list[Page]) -> None:
    for page in docs(pages):
        for line, code in _fences(page, "python"):
            compile("\n" * (line - 1) + code, f"body of {page.path}", "exec")


@pytest.mark.timeout(900)
@pytest.mark.skipif(not TORCH_ROOT, reason="no torch")
def test_python_snippets_that_say_so_run_on_the_cpu(pages: list[Page], tmp_path: Path) -> None:
    codes = [code for page in docs(pages) for _, code in _fences(page, "python") if RUNS in code]
    script = tmp_path / "snippets.py"
    script.write_text("".join(f"exec(compile({code!r}, 'snippet', 'exec'), {{}})\n" for code in codes))
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}  # on a busy machine torch's threads wait for one another
    result = subprocess.run([sys.executable, str(script)], cwd=tmp_path, env=alone, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-4000:]


@pytest.mark.skipif(not TORCH_ROOT, reason="no torch")
def test_the_matrices_of_winograd_s_page_make_a_convolution() -> None:
    import torch

    text = (CORPUS / "docs" / "conv-winograd-fft.md").read_text()

    def matrix(name: str) -> "torch.Tensor":
        found = re.search(rf"^ +{re.escape(name)} = (.+)$", text, re.MULTILINE)
        assert found is not None
        return torch.tensor([ast.literal_eval(row) for row in re.findall(r"\[[^\]]+\]", found[1])]).double()

    inputs, filters, outputs = matrix("B^T"), matrix("24 G") / 24, matrix("A^T")
    generator = torch.Generator().manual_seed(1)
    tile, taps = (torch.randn(n, n, generator=generator).double() for n in (6, 3))
    made = outputs @ ((filters @ taps @ filters.T) * (inputs @ tile @ inputs.T)) @ outputs.T
    wanted = torch.nn.functional.conv2d(tile[None, None], taps[None, None])[0, 0]
    torch.testing.assert_close(made, wanted)
