"""What a problem's call takes, as delivered files check it: tensors and plain values in records too."""

import enum
from argparse import Namespace
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from ncu_server.worker.contract import contract


@dataclass
class Batch:
    x: torch.Tensor
    gain: float
    dtype: torch.dtype


@dataclass
class Nothing:
    pass


class Kind(enum.Enum):
    SUM = 1


class Model(torch.nn.Module):
    def forward(self, batch: Batch, plain: Any, kind: Kind, *, nothing: Nothing, y: torch.Tensor) -> torch.Tensor:
        return batch.x * batch.gain + plain.z + y


def test_tensors_and_values_in_records_are_listed_in_order() -> None:
    batch, plain = (
        Batch(torch.ones(2, 3), 2.0, torch.float16),
        Namespace(z=torch.ones(3, dtype=torch.float64), name="a"),
    )
    keywords = {"y": torch.ones(1), "nothing": Nothing()}
    found = contract(Model(), ((), {}), ([batch, plain, Kind.SUM], keywords), [1, 2, 3])
    assert [(tensor["shape"], tensor["dtype"]) for tensor in found["takes"]] == [
        ([2, 3], "float32"),
        ([3], "float64"),
        ([1], "float32"),
    ]
    assert found["leaves"] == ["tensor", "float", "dtype", "tensor", "str", "enum", "tensor"]
    assert found["held"] == [None, None, ["torch.float16"], None, ["a"], ["Kind.SUM"], None]
    records = ["record", {"x": None, "gain": None, "dtype": None}], ["record", {"z": None, "name": None}], None
    assert found["form"] == ["tuple", [["list", [*records]], ["dict", {"nothing": ["record", {}], "y": None}]]]
    assert not found["is_plain"]


def test_lists_and_tensors_alone_are_plain() -> None:
    class Sum(torch.nn.Module):
        def forward(self, xs: list[torch.Tensor], scale: float) -> torch.Tensor:
            return xs[0] * scale

    found = contract(Sum(), ((), {}), ([[torch.ones(2)], 2.0], {}), [])
    assert found["is_plain"] and found["leaves"] == ["tensor", "float"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_scripted_module_without_a_signature_is_taken_as_it_is_called() -> None:
    class Swish(torch.jit.ScriptModule):
        @torch.jit.script_method
        def forward(self, x):  # type: ignore[no-untyped-def]
            return x * torch.sigmoid(x)

    assert contract(Swish(), ((), {}), ([torch.ones(2)], {}), [])["leaves"] == ["tensor"]
