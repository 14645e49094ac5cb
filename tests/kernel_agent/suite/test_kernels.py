"""Which file of a folder stands for which problem."""

from pathlib import Path

import pytest

from kernel_agent.errors import UsageError
from kernel_agent.suite.kernels import found_kernels
from kernel_agent.suite.types import SuiteProblem


def problems(*ids: str) -> list[SuiteProblem]:
    return [SuiteProblem(id, "") for id in ids]


def folder(place: Path, *names: str) -> Path:
    for name in names:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("class ModelNew: ...\n")
    return place


@pytest.mark.parametrize(
    ("id", "name"),
    [
        ("level1/19_ReLU", "level1/19_ReLU.py"),
        ("level1/19_ReLU", "level1/19_my_kernel.py"),
        ("level1/19_ReLU", "19_my_kernel.py"),
        ("level1/19_ReLU", "19_ReLU.py"),
        ("level1/19_ReLU", "level_1_problem_19_sample_0_kernel.py"),
        ("level1/19_ReLU", "runs/best/level_1_problem_19_sample_0_kernel.py"),
        ("19_ReLU", "level_1_problem_19_sample_0_kernel.py"),
        ("19_ReLU", "19_other.py"),
        ("softmax", "softmax.py"),
        ("hard/01_fp8_gemm/m64", "hard/01_fp8_gemm.py"),
    ],
)
def test_a_problem_finds_its_file(tmp_path: Path, id: str, name: str) -> None:
    found = found_kernels(folder(tmp_path, name), problems(id))
    assert found.files == {id: tmp_path / name} and not found.missing and not found.unused


def test_a_file_of_exactly_the_id_goes_before_others(tmp_path: Path) -> None:
    names = ("level1/19_ReLU.py", "level1/19_other.py", "level_1_problem_19_sample_0_kernel.py")
    found = found_kernels(folder(tmp_path, *names), problems("level1/19_ReLU"))
    assert found.files == {"level1/19_ReLU": tmp_path / "level1" / "19_ReLU.py"}
    assert sorted(found.unused) == ["level1/19_other", "level_1_problem_19_sample_0_kernel"]


def test_two_files_for_a_problem_are_ambiguous_and_named(tmp_path: Path) -> None:
    found = found_kernels(folder(tmp_path, "19_a.py", "19_b.py", "20_c.py"), problems("19_ReLU", "20_X"))
    assert found.missing == {"19_ReLU": "several files may be for it: 19_a, 19_b"}
    assert list(found.files) == ["20_X"]


def test_a_file_that_may_be_for_two_problems_is_for_neither(tmp_path: Path) -> None:
    found = found_kernels(folder(tmp_path, "1_a.py", "level2/1_b.py"), problems("level1/1_X", "level2/1_Y"))
    assert found.missing["level1/1_X"] == "1_a may be for other problems too"
    assert found.missing["level2/1_Y"].startswith("several files may be for it")


def test_levels_and_samples_are_told_apart(tmp_path: Path) -> None:
    names = [f"level_{level}_problem_1_sample_{sample}_kernel.py" for level in (1, 2) for sample in (0, 1)]
    asked = problems("level1/1_X", "level2/1_Y", "level3/1_Z")
    found = found_kernels(folder(tmp_path, *names), asked, sample=1)
    assert {id: file.name for id, file in found.files.items()} == {"level1/1_X": names[1], "level2/1_Y": names[3]}
    assert found.missing == {"level3/1_Z": f"{tmp_path} has no file for it"}


def test_one_kernel_of_a_deck_stands_for_all_its_shapes(tmp_path: Path) -> None:
    found = found_kernels(folder(tmp_path, "gemm.py"), problems("gemm/small", "gemm/large"))
    assert set(found.files.values()) == {tmp_path / "gemm.py"} and not found.missing


def test_hidden_files_and_caches_are_no_kernels(tmp_path: Path) -> None:
    folder(tmp_path, "__pycache__/19_ReLU.py", ".old/19_ReLU.py", "__init__.py")
    with pytest.raises(UsageError, match="holds no kernel"):
        found_kernels(tmp_path, problems("19_ReLU"))
    with pytest.raises(UsageError, match="There is no folder"):
        found_kernels(tmp_path / "none", problems("19_ReLU"))
