"""Containers with names: taken apart, put together, and never asked for what they would first have to compute."""

import collections
import dataclasses
import enum
import sys
import types
from argparse import Namespace
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import torch

from ncu_server.rules.comparison import structure_fault
from ncu_server.worker.tensors import UnacceptableOutput, flatten, unflatten

SOURCE = """
import dataclasses, enum, torch
from collections import OrderedDict
from typing import NamedTuple

@dataclasses.dataclass
class Out:
    y: object
    loss: object = None

@dataclasses.dataclass(frozen=True, slots=True)
class Small:
    y: object

class Pair(NamedTuple):
    a: object
    b: object

class Mode(enum.Enum):
    FAST = 1

class Config:
    width = 3
    def __init__(self):
        self.gain = 2.0

class Lazy:
    def __init__(self, x):
        self.x = x
    @property
    def y(self):
        raise AssertionError("looked at")

@dataclasses.dataclass
class LazyField:
    x: object

class Bag(list):
    def __iter__(self):
        raise AssertionError("gone through")
"""


@pytest.fixture(params=["candidate", "problem"])
def loaded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    module = types.ModuleType(request.param)
    monkeypatch.setitem(sys.modules, request.param, module)
    exec(SOURCE, module.__dict__)
    yield module


def again(tree: Any) -> Any:
    structure, tensors = flatten(tree)
    return unflatten(structure, tensors)


def test_what_has_a_name_comes_back_as_what_it_was(loaded: Any) -> None:
    x = torch.ones(2)
    out = again(loaded.Out({1: x}, loaded.Pair(x, (3, None))))
    assert type(out) is loaded.Out and type(out.loss) is loaded.Pair and out.loss.b == (3, None)
    assert list(out.y) == [1] and torch.equal(out.y[1], x)
    assert again(loaded.Small(2)) == loaded.Small(2)
    assert again(loaded.Mode.FAST) is loaded.Mode.FAST
    config = again(loaded.Config())
    assert type(config) is loaded.Config and (config.gain, config.width) == (2.0, 3)
    assert again(types.SimpleNamespace(a=1)) == types.SimpleNamespace(a=1)
    assert again(Namespace(a=[1])).a == [1]


def test_where_the_class_is_not_there_a_stand_in_has_its_parts(loaded: Any) -> None:
    x = torch.ones(2)
    told = [flatten(tree)[0] for tree in (loaded.Out(x), loaded.Pair(x, 2), loaded.Config())]
    loaded.__dict__.clear()
    out, pair, config = (unflatten(structure, [x]) for structure in told)
    assert out.y is x and out.loss is None and pair[1] == pair.b == 2 and (config.gain, config.width) == (2.0, 3)


@pytest.mark.parametrize(
    "value",
    [
        torch.float16,
        1 + 2j,
        torch.device("cpu"),
        torch.nn.ReLU,
        torch.nn.functional.relu,
        torch.relu,
        {None: 1, 2: "a"},
    ],
    ids=["dtype", "complex", "device", "class", "function", "operator", "keys"],
)
def test_other_plain_values_come_back(value: Any) -> None:
    assert again(value) == value


def test_a_candidate_s_containers_are_read_without_its_own_code(loaded: Any) -> None:
    x = torch.ones(2)
    structure, tensors = flatten(loaded.Bag([x]), strict=True)
    assert structure == {"list": [{"tensor": 0}]} and torch.equal(tensors[0], x)
    structure, _ = flatten(loaded.Lazy(x), strict=True)
    assert [name for name, _ in structure["record"][2]] == ["x"]
    loaded.LazyField.x = property(lambda self: pytest.fail("looked at"), lambda self, value: None)
    with pytest.raises(UnacceptableOutput, match="computed when it is looked at"):
        flatten(loaded.LazyField(x), strict=True)


def fault(want: Any, have: Any) -> str | None:
    trees = [dict(zip(("structure", "tensors"), flatten(tree), strict=True)) for tree in (want, have)]
    described = [
        [{"name": "output", "shape": list(t.shape), "dtype": str(t.dtype), "bytes": t.nbytes} for t in tree["tensors"]]
        for tree in trees
    ]
    for tree, told in zip(trees, described, strict=True):
        tree["tensors"] = told
    return structure_fault(trees[0], described[0], trees[1])


class Other(NamedTuple):
    a: object
    c: object


Pair = collections.namedtuple("Pair", "a b")


@dataclasses.dataclass
class Out:
    loss: object
    y: object


class Mode(enum.Enum):
    SLOW = 2


def test_names_of_a_record_and_its_fields_count_and_their_order_does_not(loaded: Any) -> None:
    x = torch.ones(2)
    assert fault(loaded.Out(x), Out(None, x)) is None
    assert fault(loaded.Pair(x, x), Pair(x, x)) is None
    assert fault((x, x), Pair(x, x)) is None
    words = "returns a tuple of 2 where the reference returns a namedtuple Pair(a, b)"
    assert fault(loaded.Pair(x, x), (x, x)) == words
    assert "a namedtuple Other(a, c)" in (fault(loaded.Pair(x, x), Other(x, x)) or "")
    words = "returns a dict with keys y, loss where the reference returns a dataclass Out(y, loss)"
    assert fault(loaded.Out(x), {"y": x, "loss": None}) == words
    assert "at .loss" in (fault(loaded.Out(x), Out(3, x)) or "")
    assert fault(loaded.Mode.FAST, Mode.SLOW)
    assert fault({1: x}, {"1": x})
