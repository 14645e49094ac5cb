"""How far what is seen of a call moves where operands of its products are rounded."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ncu_server.worker.reference import Reference

PROBLEM = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(64, 8)
        self.norm = torch.nn.BatchNorm1d(8)

    def forward(self, x):
        return self.norm(self.linear(x)), (x > 0).sum()

def get_inputs():
    return [torch.rand(256, 64)]
"""


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    monkeypatch.setenv("OMP_NUM_THREADS", str(torch.get_num_threads()))
    monkeypatch.chdir(tmp_path)
    fds = [os.memfd_create(name) for name in ("inputs", "expected")]
    yield fds
    for fd in fds:
        os.close(fd)


def test_outputs_and_buffers_move_by_what_the_products_err(memory: list[int]) -> None:
    one = Reference()
    one.open_reference(memory, PROBLEM, "cpu", 1, None)
    drawn = one.draw(memory, "get_inputs", 2)["inputs"]
    told = one.expect(memory, drawn)
    moved = one.moved(memory, drawn, told["effects"])
    names = [seen["name"] for seen in told["tensors"]]
    assert names[:2] == ["output 0", "output 1"] and len(moved) == len(names)
    by_name = dict(zip(names, moved, strict=True))
    assert by_name["output 1"] == by_name["buffer norm.num_batches_tracked"] == 0.0, "integers stay"
    assert 2.0**-14 < by_name["output 0"] < 2.0**-8
    assert 0 < by_name["buffer norm.running_mean"] < by_name["output 0"] / 30, "a tenth of a mean, whose errors average"
