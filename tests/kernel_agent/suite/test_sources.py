"""A path becomes the problems of a suite: the forms that collections have, and what is wrong with some of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernel_agent.errors import UsageError
from kernel_agent.suite.sources import collect
from tests.support.paths import ROOT
from tests.support.scripted_run import MODEL

LOADS = """from transformers import AutoModelForCausalLM, AutoConfig
import torch

model_name = "owner/name"


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained(model_name)

    def forward(self, x):
        return self.model(x).logits


def get_inputs():
    return [torch.randint(0, 10, (1, 8))]
"""
SIZED = MODEL.replace("torch.randn(64, 64)", "torch.randn(M, n)") + "\n\nM = 4\nn = 4\n"
TASK = """import torch


def forward_fn(x, weight):
    return x * weight


class Model(torch.nn.Module):
    def __init__(self, features: int, scale: float = 1.0):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((features,), scale))

    def forward(self, x, fn=forward_fn):
        return fn(x, self.weight)


def get_inputs(batch: int = 2, features: int = 4):
    return [torch.randn(batch, features)]
"""


def write(folder: Path, **files: str) -> Path:
    """Files by their names, in which `__` parts folders."""
    for name, text in files.items():
        path = folder / Path(*name.split("__")).with_suffix(".py" if "_json" not in name else "")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def ids(path: Path, level: int | None = None, picked: str | None = None) -> list[str]:
    return [problem.id for problem in collect(path, level, picked).problems]


@pytest.fixture
def kernelbench(tmp_path: Path) -> Path:
    """A checkout with levels 1, 2 and 4, in which level 4 needs weights."""
    names = ("level1__19_ReLU", "level1__2_Mul", "level1__100_Loss", "level2__1_Conv")
    write(tmp_path / "KernelBench", **dict.fromkeys(names, MODEL), level4__1_gpt=LOADS, changelog__v1=MODEL)
    write(tmp_path, scripts__run="print()\n")
    return tmp_path


def test_a_checkout_of_kernelbench_has_levels_in_the_order_of_their_numbers(kernelbench: Path) -> None:
    assert ids(kernelbench) == ["level1/2_Mul", "level1/19_ReLU", "level1/100_Loss", "level2/1_Conv"]
    assert ids(kernelbench, 1, "1-20,40") == ["level1/2_Mul", "level1/19_ReLU"]
    assert ids(kernelbench / "KernelBench" / "level2") == ["1_Conv"]


def test_level_4_is_kept_where_its_weights_lie_on_the_disk(
    kernelbench: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    assert collect(kernelbench).notices == (
        "1 problem is left out, whose weights do not lie on this disk: owner/name.",
    )
    with pytest.raises(UsageError, match=r"can be played here: 1 problem is left out.*owner/name"):
        collect(kernelbench, 4)
    snapshot = tmp_path / "hub" / "models--owner--name" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (snapshot / name).touch()
    assert ids(kernelbench, 4) == ["level4/1_gpt"] and not collect(kernelbench).notices


def test_a_deck_is_a_problem_for_each_of_its_shapes(tmp_path: Path) -> None:
    shapes = "SIZE = 8\nSHAPES = [{'m': SIZE, 'n': 3}, {'m': 16, 'n': 5}]\n"
    write(tmp_path, one__reference=SIZED, one__shapes=shapes, other__reference=MODEL, check="print()\n")
    (tmp_path / "one" / "problem.yaml").write_text(
        "display_name: Sized\nprecision: fp8\ntolerance:\n  bfloat16: 0.2\nsota:\n  name: Fast\n"
    )
    found = collect(tmp_path)
    assert [one.id for one in found.problems] == ["one/shape_1", "one/shape_2", "other"]
    first = found.problems[0]
    assert first.code.endswith("M = 8\nn = 3\n") and found.problems[1].code.endswith("M = 16\nn = 5\n")
    notes = "shape 1: m 8, n 3", "Sized", "precision fp8", "its own judge allows bfloat16 0.2", "beside it stands Fast"
    assert first.notes == notes and not found.faults


@pytest.mark.parametrize(
    ("shapes", "why"),
    [
        ("SHAPES = [{'length': 3}]\n", r"sets `length`, and .* has no such value"),
        ("SHAPES = sizes()\n", "has no list `SHAPES` of sizes"),
        ("SHAPES = [\n", "does not parse"),
    ],
)
def test_a_deck_that_cannot_be_read_fails_alone(tmp_path: Path, shapes: str, why: str) -> None:
    found = collect(write(tmp_path, bad__reference=SIZED, bad__shapes=shapes, good__reference=MODEL))
    assert [one.id for one in found.problems] == ["bad", "good"] and list(found.faults) == ["bad"]
    with pytest.raises(UsageError, match=why):
        collect(tmp_path / "bad")


def test_a_task_of_robust_kbench_is_configured_and_says_that_it_is_degenerate(tmp_path: Path) -> None:
    write(tmp_path, tasks__scale__func_forward=TASK, tasks__scale__func_backward=TASK, setup="print()\n")
    config = {
        "single_input_configs": [{"batch": 8}],
        "single_init_configs": [{"scale": 2.0}, {"scale": 3.0}],
        "single_shared_configs": [{"features": 16}],
    }
    folder = tmp_path / "tasks" / "scale"
    (folder / "config_forward.json").write_text(json.dumps(config))
    (folder / "filter_results.json").write_text('{"filter_output_std": true, "filter_output_axes": false}')
    found = collect(tmp_path)
    assert [one.id for one in found.problems] == ["tasks/scale/config_1", "tasks/scale/config_2"]
    code = found.problems[1].code
    assert "_configured_inputs(batch=8, features=16)" in code and "return {'scale': 3.0, 'features': 16}" in code
    why = "degenerate by robust-kbench: its outputs are alike whatever its inputs and weights are"
    assert found.problems[0].notes == (why,) and found.notices[0].startswith("1 task asks for gradients")


def test_any_folder_has_its_files_with_what_they_import(tmp_path: Path) -> None:
    uses = "from shared import SIZE\n" + MODEL.replace("64, 64", "SIZE, SIZE")
    (tmp_path / "__init__.py").touch()
    found = collect(write(tmp_path, b=uses, shared="SIZE = 8\n", deep__a=MODEL))
    assert [one.id for one in found.problems] == ["b", "deep/a"] and not found.faults
    assert "SIZE = 8" in found.problems[0].code


def test_a_file_that_is_no_problem_is_one_that_fails_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "latin.py").write_bytes(b"x = '\xff\xfe\xfa'\n" * 3)
    found = collect(write(tmp_path, good=MODEL, none="print()\n", broken="def (\n"))
    assert [one.id for one in found.problems] == ["broken", "good", "latin", "none"]
    assert set(found.faults) == {"broken", "latin", "none"}
    assert "does not parse" in found.faults["broken"] and "holds no `Model`" in found.faults["none"]


def test_the_examples_are_a_suite_and_so_is_one_of_them() -> None:
    every = ids(ROOT / "examples")
    assert every == sorted(path.stem for path in (ROOT / "examples").glob("*.py")) and len(every) > 4
    assert ids(ROOT / "examples", picked="2,4") == [every[1], every[3]]
    assert ids(ROOT / "examples" / "softmax.py") == ["softmax"]
