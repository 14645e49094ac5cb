"""Which GPUs a server sees."""

from __future__ import annotations

import pytest

from ncu_server.targets import cuda, nvml

UUIDS = ("GPU-aa1", "GPU-ab2", "GPU-b3")


@pytest.mark.parametrize(
    ("variable", "numbers"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("-1", []),
        ("2,0", [2, 0]),
        (" 1 , 2 ", [1, 2]),
        ("GPU-b", [2]),
        ("GPU-ab2,0", [1, 0]),
        ("GPU-a", []),  # two of them begin so
        ("0,7,1", [0]),  # what names none ends the list
        ("1,1", [1]),
        ("MIG-1", []),
    ],
)
def test_the_variable_chooses_gpus_and_their_order(variable: str | None, numbers: list[int]) -> None:
    assert nvml.shown(variable, UUIDS) == numbers


@pytest.mark.gpu
def test_the_first_visible_gpu_is_the_one_that_is_measured_on() -> None:
    first, probed = nvml.visible()[0], cuda.first_gpu()
    assert probed is not None and (first.name, first.uuid) == (probed[0], probed[2])
    assert first.memory_bytes > 1e9
