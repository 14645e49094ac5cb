"""Tensors that cannot be judged are named in words, wherever a problem has them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ncu_server.worker.dense import Unjudgeable
from ncu_server.worker.reference import Reference

PROBLEM = """
import torch, torch.nn as nn
from torch._subclasses.fake_tensor import FakeTensorMode

class Model(nn.Module):
    def __init__(self, *given):
        super().__init__()
        {init}

    def forward(self, *x):
        {forward}

def get_inputs():
    return [torch.randn(4, 4), {input}]

def get_init_inputs():
    return [{argument}]
"""
KINDS = {
    "torch.eye(4).to_sparse()": "a sparse tensor of layout sparse_coo",
    "torch.eye(4).to_sparse_csr()": "a sparse tensor of layout sparse_csr",
    "torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])": "a nested tensor (layout strided)",
    "torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged)": "a nested tensor (layout jagged)",
    "torch.eye(4).to_mkldnn()": "a tensor of layout mkldnn",
    "torch.eye(4, device='meta')": "a meta tensor, which has no values",
    "FakeTensorMode().from_tensor(torch.eye(4))": "a FakeTensor, which is no plain tensor",
    "torch.quantize_per_tensor(torch.eye(4), 0.1, 0, torch.quint8)": "a quantized tensor (quint8)",
    "torch.empty(4, dtype=torch.uint4)": "a tensor of torch.uint4",
    "torch.empty(4, dtype=torch.float4_e2m1fn_x2)": "a tensor of torch.float4_e2m1fn_x2",
}


@pytest.fixture(autouse=True)
def worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One thread, and a directory in which a problem's file may lie."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def memory() -> Iterator[list[int]]:
    fds = [os.memfd_create(name) for name in ("inputs", "expected")]
    yield fds
    for fd in fds:
        os.close(fd)


def opened(memory: list[int], **parts: str) -> Reference:
    whole = {"init": "pass", "forward": "return x[0] * 2", "input": "torch.randn(4)", "argument": ""} | parts
    reference = Reference()
    reference.open_reference(memory, PROBLEM.format(**whole), "cpu", 1, None)
    return reference


@pytest.mark.parametrize("made", KINDS)
@pytest.mark.filterwarnings("ignore")
def test_a_tensor_that_cannot_be_judged_is_named_as_input_and_as_output(memory: list[int], made: str) -> None:
    with pytest.raises(Unjudgeable) as fault:
        opened(memory, input=made).draw(memory, "get_inputs", 1)
    assert str(fault.value).startswith(f"get_inputs gives {KINDS[made]} as input 1: only dense tensors")
    reference = opened(memory, forward=f"return x[0], {made}")
    drawn = reference.draw(memory, "get_inputs", 1)["inputs"]
    with pytest.raises(Unjudgeable) as fault:
        reference.expect(memory, drawn)
    assert str(fault.value).startswith(f"Model.forward gives {KINDS[made]} as output 1: only dense tensors")


@pytest.mark.parametrize(
    ("init", "words"),
    [
        ("self.register_buffer('adjacency', torch.eye(4).to_sparse())", "`adjacency` as a sparse tensor"),
        (
            "self.fc = nn.LazyLinear(4)",
            "(of a Lazy module): only dense tensors of plain numbers can be judged; give the layer its sizes",
        ),
        ("self.fc = nn.Linear(4, 4, device='meta')", "`fc.weight` as a meta tensor"),
    ],
)
def test_a_parameter_that_cannot_be_judged_is_named(memory: list[int], init: str, words: str) -> None:
    with pytest.raises(Unjudgeable) as fault:
        opened(memory, init=init)
    assert words in str(fault.value)


def test_an_argument_of_the_constructor_that_is_no_dense_tensor_is_named(memory: list[int]) -> None:
    with pytest.raises(Unjudgeable, match="get_init_inputs gives a sparse tensor of layout sparse_coo as argument 0"):
        opened(memory, argument="torch.eye(4).to_sparse()")


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "bfloat16", "complex64", "uint16", "int8", "bool"])
def test_dense_tensors_of_every_plain_dtype_are_taken(memory: list[int], dtype: str) -> None:
    drawn = opened(memory, input=f"torch.zeros(4).to(torch.{dtype})").draw(memory, "get_inputs", 1)["inputs"]
    assert drawn["tensors"][1]["dtype"] == dtype
