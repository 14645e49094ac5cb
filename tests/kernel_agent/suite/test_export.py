"""A suite's kernels as a run of KernelBench's scripts, and loaded as these load them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_agent.errors import UsageError
from kernel_agent.suite.export import ExportedLevel, architecture, export
from kernel_agent.suite.plan import Plan
from kernel_agent.suite.store import Store, read
from kernel_agent.suite.types import Outcome, State, SuiteProblem
from tests.support.suites import GELU, RELU, SORT, played

LOADED = """
import sys
from pathlib import Path
import torch

reference, kernel, place = sys.argv[1:]
context = {}
exec(compile(Path(reference).read_text(), "<string>", "exec"), context)
first, made, inputs = context["Model"], context["get_init_inputs"](), context["get_inputs"]()
text = f"import os\\nos.environ['TORCH_EXTENSIONS_DIR'] = '{place}'\\n" + Path(kernel).read_text()
exec(compile(text, "<string>", "exec"), context)
new = context["ModelNew"](*made).to(dtype=torch.float32)
torch.testing.assert_close(new(*inputs), first(*made)(*inputs))
print("agrees")
"""
"""What KernelBench does with a reference and a kernel, in one namespace; on the CPU."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("kept") / "suite"
    asyncio.run(played(directory))
    return directory


def test_kernels_lie_where_the_script_looks_for_them_and_originals_do_not(kept: Path, tmp_path: Path) -> None:
    found = export(read(kept), tmp_path / "kb")
    first, second = found.levels
    assert (first.level, first.numbers, second.level, second.numbers) == (1, (19,), 2, (26,))
    text = (tmp_path / "kb" / "level1" / "level_1_problem_19_sample_0_kernel.py").read_text()
    assert "class ModelNew" in text and "_ka_load_inline" in text
    assert found.left_out == {SORT.id: f"{SORT.id} has no kernel (original delivered)"} and not found.as_it_lay
    assert first.command is None, "KernelBench has no backend for the CPU"
    with pytest.raises(UsageError, match="level1 is not empty"):
        export(read(kept), tmp_path / "kb")


def test_a_folder_that_cannot_be_written_is_one_sentence(kept: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in ("file", "file/kb"):
        with pytest.raises(UsageError, match=r"level1 cannot be written \(.*\): choose another folder\.$"):
            export(read(kept), tmp_path / place)


def test_the_other_binding_can_be_asked_for(kept: Path, tmp_path: Path) -> None:
    export(read(kept), tmp_path / "kb", bind="tvm_ffi")
    text = (tmp_path / "kb" / "level1" / "level_1_problem_19_sample_0_kernel.py").read_text()
    assert "class ModelNew" in text and "tvm_ffi" in text and "_ka_load_inline" not in text


@pytest.mark.parametrize(
    ("source", "level", "folder"), [("problems", 3, "level3"), ("bench/level4", None, "level4"), ("x", None, None)]
)
def test_a_level_comes_from_the_id_the_path_or_the_flag(
    kept: Path, tmp_path: Path, source: str, level: int | None, folder: str | None
) -> None:
    flat = SuiteProblem("19_ReLU", RELU.code)
    with Store.create(tmp_path / "suite", Plan(source, {}), (flat,)) as store:
        place = flat.directory(tmp_path / "suite")
        place.mkdir(parents=True)
        for file in RELU.directory(kept).iterdir():
            (place / file.name).write_bytes(file.read_bytes())
        store.append(Outcome(flat.id, State.DONE))
        if folder is None:
            with pytest.raises(UsageError, match="19_ReLU says no level: name it with --level"):
                export(store.load(), tmp_path / "kb", level=level)
            return
        export(store.load(), tmp_path / "kb", level=level)
    assert [path.name for path in (tmp_path / "kb").iterdir()] == [folder]


def test_a_command_names_folder_level_backend_and_architecture(tmp_path: Path) -> None:
    level = ExportedLevel(tmp_path / "level1", 1, (1, 6, 96), "triton", "sm_90")
    assert level.command == (
        f"python scripts/eval_from_generations.py run_name=level1 runs_dir={tmp_path} dataset_src=local level=1 "
        "subset='(1, 96)' backend=triton gpu_arch='[\"Hopper\"]'"
    )


@pytest.mark.parametrize(
    ("arch", "name"),
    [("sm_75", "Turing"), ("sm_86", "Ampere"), ("sm_89", "Ada"), ("sm_90", "Hopper"), ("sm_100", "Blackwell")],
)
def test_architectures_have_the_names_that_kernelbench_gives_them(arch: str, name: str) -> None:
    assert architecture(arch) == name and architecture("x86_64") is None


@pytest.mark.long
def test_an_exported_kernel_agrees_where_kernelbench_loads_it(kept: Path, tmp_path: Path) -> None:
    export(read(kept), tmp_path / "kb")
    (tmp_path / "reference.py").write_text(GELU.code)
    kernel = tmp_path / "kb" / "level2" / "level_2_problem_26_sample_0_kernel.py"
    words = [sys.executable, "-c", LOADED, str(tmp_path / "reference.py"), str(kernel), str(tmp_path / "built")]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "agrees\n", done.stderr[-3000:]
