"""The delivered file: what it carries, and that it works without us in an empty folder and a fresh process."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_agent.delivery.contract import Contract, contract_of
from kernel_agent.delivery.module import carried, delivered
from kernel_agent.delivery.source import without_future
from kernel_agent.run.types import Problem
from tests.support.deliveries import CONTRACT, CUDA, KERNEL, PROBLEM, description, ran, whole
from tests.support.edits import edit
from tests.support.scripted_run import DESCRIPTION

USE = """
import copy, json, sys
import torch
from best_kernel import Model, ModelNew, get_init_inputs, get_inputs

said = {}


def refusal(name, work):
    try:
        work()
        said[name] = "done"
    except Exception as fault:
        said[name] = f"{type(fault).__name__}: {fault}"


original, model = Model(*get_init_inputs()), ModelNew(*get_init_inputs())
model.load_state_dict(original.state_dict())
x, offset = get_inputs()
with torch.no_grad():
    right = original(x, offset)
said["agrees"] = torch.allclose(model(x, offset), right)
said["keyword"] = torch.allclose(model(x, offset=offset), right)
said["strided"] = torch.allclose(model(x.T.contiguous().T, offset), right)
unaligned = torch.empty(x.numel() + 1)[1:].view_as(x).copy_(x)
said["unaligned"] = torch.allclose(model(unaligned, offset), right)
said["moved"] = torch.allclose(copy.deepcopy(model).to("cpu")(x, offset), right)
said["bare"] = [name for name in ("TVM_FFI_CACHE_DIR", "TORCH_EXTENSIONS_DIR") if name in __import__("os").environ]
refusal("shape", lambda: model(x[:1], offset))
refusal("dtype", lambda: model(x.double(), offset))
refusal("gradient", lambda: model(x.clone().requires_grad_(), offset))
refusal("half", lambda: model.half())
refusal("width", lambda: ModelNew(width=128))
refusal("parameter", lambda: setattr(model, "scale", torch.nn.Parameter(torch.ones(3))) or model(x, offset))
model.load_state_dict(original.state_dict()) if model.scale.shape == original.scale.shape else None
model = ModelNew(*get_init_inputs())
model.load_state_dict(original.state_dict())
ModelNew.original_elsewhere = True
with torch.no_grad():
    said["fallback"] = torch.equal(model(x[:1], offset), right[:1])
ModelNew.original_elsewhere = False
said["argv"] = sys.argv
if "compile" in sys.argv:
    with torch.no_grad():
        said["compile"] = torch.equal(torch.compile(model, fullgraph=True)(x, offset), model(x, offset))
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.scale.mul_(2)
        said["copied"] = torch.equal(torch.compile(twin, fullgraph=True)(x, offset), twin(x, offset))
print(json.dumps(said))
"""


def used(place: Path, text: str, *words: str, **variables: str) -> dict[str, object]:
    place.mkdir(parents=True, exist_ok=True)
    (place / "best_kernel.py").write_text(text)
    found: dict[str, object] = json.loads(ran(place, USE, *words, **variables)[-1])
    return found


@pytest.mark.parametrize("bind", ["tvm_ffi", pytest.param("torch", marks=pytest.mark.long)])
def test_a_file_alone_in_an_oddly_named_folder_is_right_and_refuses(tmp_path: Path, bind: str) -> None:
    words = ("compile",) if bind == "torch" else ()
    said = used(tmp_path / "Jane Doe's $HOME", whole(bind), *words, TMPDIR="/tmp")
    right = (
        "agrees",
        "keyword",
        "strided",
        "unaligned",
        "moved",
        "fallback",
        *(("compile", "copied") if words else ()),
    )
    assert {name: said[name] for name in right} == dict.fromkeys(right, True)
    assert said["bare"] == [], "the build's settings are gone after it"
    verified = "ModelNew was verified for float32 [64, 256]; it was called with"
    assert str(said["shape"]).startswith(f"ValueError: {verified} float32 [1, 256]: find a kernel for that")
    assert str(said["dtype"]).startswith(f"ValueError: {verified} float64 [64, 256]")
    assert str(said["gradient"]).startswith("RuntimeError: This kernel gives no gradients")
    assert str(said["half"]).startswith("TypeError: This kernel was verified with parameters of torch.float32")
    made = "ModelNew was verified with width=256; this module was made with width=128"
    assert str(said["width"]).startswith(f"ValueError: {made}: find a kernel for that")
    assert said["parameter"] == "ValueError: scale is float32 [3]; this kernel was verified with float32 [256]."


@pytest.mark.parametrize("bind", ["tvm_ffi", pytest.param("torch", marks=pytest.mark.long)])
def test_a_file_builds_where_its_packages_lie_in_an_oddly_named_folder(tmp_path: Path, bind: str) -> None:
    site, spare = tmp_path / "Jane Doe's $HOME" / "site", tmp_path / "spare"
    site.mkdir(parents=True)
    spare.mkdir()
    installed = Path(sysconfig.get_path("purelib"))
    (site / "torch").symlink_to(installed / "torch")
    shutil.copytree(installed / "tvm_ffi", site / "tvm_ffi")
    place = tmp_path / "place"
    said = used(place, whole(bind), TMPDIR=str(spare), PYTHONPATH=f"{place}:{site}")
    assert said["agrees"] is True and said["bare"] == []
    assert list(spare.glob("kernel-agent-*/names/*"))


def test_a_module_of_another_name_that_reads_the_command_line_is_delivered(tmp_path: Path) -> None:
    reads = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--width')\nparser.parse_args()\n"
    source = (reads + edit(PROBLEM, "from __future__ import annotations\n", "")).replace("Model", "Scaled", 1)
    source += "\n\nModel = Scaled\n"
    text = delivered(source + KERNEL, Problem("own", source, "cpu"), description(), "tvm_ffi")
    said = used(tmp_path, text, "--their", "own")
    assert said["agrees"] is True and said["fallback"] is True and said["argv"] == ["-c", "--their", "own"]


@pytest.mark.long
def test_it_runs_whole_under_torch_compile_and_so_do_its_copies(tmp_path: Path) -> None:
    said = used(tmp_path, whole(name="88 odd-näme"), "compile")
    assert said["compile"] is True and said["copied"] is True


def test_what_no_check_varied_is_held_and_so_is_the_mode_where_it_matters(tmp_path: Path) -> None:
    held = json.loads(json.dumps(CONTRACT))
    held["calls"][0]["held"] = [None, [0.5]]
    text = delivered(
        PROBLEM + KERNEL, Problem("held", PROBLEM, "cpu"), replace(description(), contract=held), "tvm_ffi"
    )
    (tmp_path / "best_kernel.py").write_text(text)
    moded = replace(description(), contract=held | {"mode": False})
    (tmp_path / "moded.py").write_text(delivered(PROBLEM + KERNEL, Problem("m", PROBLEM, "cpu"), moded, "tvm_ffi"))
    script = """
import torch, best_kernel, moded
def said(work):
    try: return type(work()).__name__
    except Exception as fault: return str(fault)
x = torch.randn(64, 256)
one, other = best_kernel.ModelNew(256), moded.ModelNew(256)
print(said(lambda: one(x, 0.5)), said(lambda: one(x, 0.25)), sep="|", end="|")
print(said(lambda: other(x, 0.5)), said(lambda: other.eval()(x, 0.5)), sep="|")
"""
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "TVM_FFI_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    right, value, mode, evaluated = done.stdout.strip().split("|")
    assert (right, evaluated) == ("Tensor", "Tensor")
    assert value.startswith("ModelNew was verified for 0.5 as one of its inputs, which is 0.25 here: find a kernel")
    assert mode.startswith("ModelNew was verified with .eval(), which this model depends on: find a kernel")


def test_another_architecture_is_refused_at_import_in_one_sentence(tmp_path: Path) -> None:
    device = replace(DESCRIPTION.device, arch="riscv64-rvv", name="a board")
    (tmp_path / "best_kernel.py").write_text(whole(device=device))
    done = subprocess.run([sys.executable, "best_kernel.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert re.search(
        r"ImportError: This kernel was verified on a board \(riscv64-rvv\); .*: find one for it\.$", done.stderr
    )


def test_a_cuda_file_carries_its_architecture_and_future_imports_stand_first() -> None:
    text = whole(target="cuda", device=CUDA)
    assert "_KA_BUILD = {'TVM_FFI_CUDA_ARCH_LIST': '9.0a'}" in text
    assert "_KA_BUILD = {'TORCH_CUDA_ARCH_LIST': '9.0a'}" in whole("torch", target="cuda", device=CUDA)
    old = replace(CUDA, arch="sm_80")
    assert "'8.0'" in whole(target="cuda", device=old)
    compile(text, "best_kernel.py", "exec")


def test_nothing_carried_looks_like_a_way_round_the_kernel_to_other_judges() -> None:
    """KernelBench's static reading rejects a file with `try:`, `except` or `pass`, in strings too."""
    for name in ("build.py", "binding.py", "guard.py", "compiled.py"):
        code = "\n".join(row.partition("#")[0].partition("//")[0] for row in carried(name).split("\n"))
        assert not re.search(r"\btry\s*:|\bexcept\b|\bpass\b|\bthreading\b|_make_subclass", code), name


def test_of_the_kernel_s_source_only_the_build_is_indented() -> None:
    judged = whole().partition("# ---- The kernel, as it was judged. ----\n")[2].partition("\n\n# ----")[0]
    block = "with _ka_as_judged:\n    "
    assert judged.count(block) == 2 and edit(judged, block, "", times=2) == without_future(PROBLEM + KERNEL)


def test_an_older_run_is_read_by_its_graph_and_says_what_it_cannot_without_one() -> None:
    old = contract_of(DESCRIPTION)
    assert [list(taken.shape) for taken in old.calls[0].takes] == [[64, 64]] and old.why_not_compiled is None
    none = contract_of(replace(DESCRIPTION, graph=None))
    assert none == Contract() and none.why_not_compiled == "the run did not record what the kernel is called with"
    changed = replace(contract_of(description()), changes=True)
    assert changed.why_not_compiled == "a call changes its inputs or buffers"


def test_a_run_without_a_records_tensors_counts_as_one_without_calls() -> None:
    older = CONTRACT | {"leaves": ["tensor", "Batch"], "is_plain": False}
    assert contract_of(replace(DESCRIPTION, contract=older)).calls == ()
    assert contract_of(replace(DESCRIPTION, contract=CONTRACT | {"leaves": ["tensor", "enum"]})).calls


RAISES = """
import os, sys
before, arguments = dict(os.environ), sys.argv
try:
    import best_kernel
except ValueError as fault:
    print(fault)
print(dict(os.environ) == before, sys.argv is arguments)
"""


@pytest.mark.parametrize("where", ["before", "after"])
def test_an_import_that_raises_leaves_the_environment_and_the_arguments_alone(tmp_path: Path, where: str) -> None:
    seen = "\nimport os, sys\nraise ValueError(f\"{os.environ['TVM_FFI_CACHE_DIR']} {sys.argv[1:]}\")\n"
    plain = PROBLEM.replace("from __future__ import annotations\n", "")
    source = seen + plain + KERNEL if where == "before" else plain + KERNEL + seen
    text = delivered(source, Problem("raises", source, "cpu"), description(), "tvm_ffi")
    (tmp_path / "best_kernel.py").write_text(text)
    said = ran(tmp_path, RAISES, "--their", "own", TVM_FFI_CACHE_DIR=str(tmp_path / "a b"), TMPDIR=str(tmp_path))
    assert said == [f"{tmp_path}/kernel-agent-{os.getuid()}/tvm-ffi []", "True True"]


KERNELBENCH = """
import os
text, place = open("best_kernel.py").read(), os.environ["HOME"] + "/build"
text = "import os\\n" f"os.environ['TORCH_EXTENSIONS_DIR'] = '{place}'\\n" + text
context = {}
compile(text, "<string>", "exec")
exec(text, context)
import torch
torch.manual_seed(1)
model = context["ModelNew"](*context["get_init_inputs"]())
torch.manual_seed(1)
original = context["Model"](*context["get_init_inputs"]())
inputs = context["get_inputs"]()
print(torch.allclose(model(*inputs), original(*inputs)))
"""
"""How KernelBench's script loads a candidate: it puts two lines before its text and runs that."""


@pytest.mark.parametrize("bind", ["tvm_ffi", pytest.param("torch", marks=pytest.mark.long)])
def test_another_judge_may_put_two_lines_before_what_imports_from_the_future(tmp_path: Path, bind: str) -> None:
    later = "def later(x: Later | None = None) -> Later: ...\nclass Later: ...\nclass ModelNew"
    source = PROBLEM + KERNEL.replace("class ModelNew", later)
    assert source.startswith("from __future__ import annotations")
    text = delivered(source, Problem("future", PROBLEM, "cpu"), description(), bind)
    (tmp_path / "best_kernel.py").write_text("# a head\n" + text)
    assert ran(tmp_path, KERNELBENCH)[-1] == "True"


def _with_nvcc(place: Path) -> str:
    (place / "cuda" / "bin").mkdir(parents=True)
    (place / "cuda" / "bin" / "nvcc").touch()
    return str(place / "cuda")


def test_importing_a_cuda_file_asks_no_gpu_and_a_call_looks_at_its_own(tmp_path: Path) -> None:
    (tmp_path / "best_kernel.py").write_text(whole(target="cuda", device=CUDA))
    script = """
import torch, tvm_ffi.cpp  # which asks whether there is a GPU
def never(*_): raise AssertionError("a GPU is asked for")
for name in ("is_available", "get_device_capability", "get_device_name", "current_device", "init", "_lazy_init"):
    setattr(torch.cuda, name, never)
import best_kernel
model = best_kernel.ModelNew(256)
def said(work):
    try: print(work())
    except (ValueError, ImportError) as fault: print(fault)
said(lambda: model(torch.randn(64, 256), 0.5))
torch.cuda.is_available = lambda: True
torch.cuda.get_device_capability = lambda device: (9, device.index)
torch.cuda.get_device_name = lambda device: f"card {device.index}"
said(lambda: best_kernel._ka_checked_parameters(model, torch.device("cuda", 1)))
said(lambda: best_kernel._ka_checked_parameters(model, torch.device("cuda", 0)))
"""
    on_cpu, other, same = ran(tmp_path, script, CUDA_HOME=_with_nvcc(tmp_path))
    assert on_cpu == "This kernel runs on cuda, and its inputs are on cpu: move them."
    verified = "This kernel was verified on NVIDIA H200 (sm_90)"
    assert other == f"{verified}; the GPU here is card 1 (sm_91): find one for it."
    assert same == "scale is on cpu and the inputs are on cuda:0: move one of them."


def test_a_file_without_a_guard_says_at_import_that_there_is_no_gpu(tmp_path: Path) -> None:
    source = PROBLEM + KERNEL.replace("ModelNew", "Fast") + "\nModelNew = Fast\n"
    text = delivered(source, Problem("other", PROBLEM, "cuda"), description(device=CUDA), "tvm_ffi")
    (tmp_path / "best_kernel.py").write_text(text)
    script = "try:\n    import best_kernel\nexcept ImportError as fault:\n    print(fault)\n"
    said = ran(tmp_path, script, CUDA_HOME=_with_nvcc(tmp_path), CUDA_VISIBLE_DEVICES="")
    assert said == ["This kernel was verified on NVIDIA H200 (sm_90); no CUDA device is visible here."]
