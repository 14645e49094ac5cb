"""What stays in memory of a model that is set up for timing, and that both sides are given the same values."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ncu_server.sandbox.shared_memory import Spec
from ncu_server.worker.answers import Effects
from ncu_server.worker.checking.effects import State
from ncu_server.worker.reference import Reference
from ncu_server.worker.tensors import apart, flatten, read, read_and_close, write
from ncu_server.worker.timing.stage import Stage

PROBLEM = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, places):
        return x.t()[places] * 2

def get_inputs():
    return [torch.randn(64, 48).t(), torch.randint(0, 64, (40,))]
"""
POINTWISE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x.tanh()

def get_inputs():
    return [torch.randn(64, 48)]
"""
NOTHING = Effects(inputs=[], buffers=[], state=[], still=[])


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[int]]:
    monkeypatch.setenv("OMP_NUM_THREADS", str(torch.get_num_threads()))
    monkeypatch.chdir(tmp_path)
    fds = [os.memfd_create(name) for name in ("inputs", "snapshot")]
    yield fds
    for fd in fds:
        os.close(fd)


def staged(memory: list[int]) -> tuple[Reference, Spec]:
    one = Reference()
    one.open_reference(memory, PROBLEM, "cpu", 1, None)
    drawn = one.draw(memory, "get_inputs", 2)["inputs"]
    one.stage(memory, drawn, NOTHING)
    return one, drawn


def snapshot(memory: list[int], one: Reference, nonce: int) -> list[torch.Tensor]:
    one.block([], nonce=nonce, count=3)
    return [t.clone() for t in read(memory[1], one.snapshot([memory[1]]))]


def test_a_hollow_example_keeps_its_form_and_no_memory(memory: list[int]) -> None:
    one, _ = staged(memory)
    before = [(t.shape, t.stride(), t.dtype) for t in flatten(one._stage.example)[1]]
    one.hollow([])
    after = flatten(one._stage.example)[1]
    assert [(t.shape, t.stride(), t.dtype) for t in after] == before
    assert [t.untyped_storage().nbytes() for t in after] == [0, 0]
    one.unstage([])


def test_two_sides_are_given_the_same_new_values_of_giants(memory: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ncu_server.worker.timing.stage.BASE_BYTES", 1 << 10)
    one, _ = staged(memory)
    other, _ = staged(memory)
    made = [snapshot(memory, side, nonce) for nonce in (11 << 20, 12 << 20) for side in (one, other)]
    assert torch.equal(made[0][0], made[1][0]) and torch.equal(made[2][0], made[3][0])
    assert not torch.equal(made[0][0], made[2][0])


def test_frugal_sides_time_what_they_are_given_where_it_lies(
    memory: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ncu_server.worker.timing.stage.FRUGAL_BASE_BYTES", 1 << 10)
    monkeypatch.setattr("ncu_server.worker.timing.stage.MAX_SETS", 1)
    one = Reference()
    one.open_reference(memory, POINTWISE, "cpu", 1, None)
    drawn = one.draw(memory, "get_inputs", 2)["inputs"]
    one.stage_drawn([], drawn, NOTHING, "get_inputs", 2)
    lent = one.lend_staged(memory)
    given = read(memory[0], lent)
    before = given[0].clone()
    model = torch.nn.Tanh()
    other = Stage(model, one._device, given, lent, State(model, [], {}), looks=lambda _: None, frugal=True)
    for nonce in (11 << 20, 12 << 20):
        theirs = one.block([], nonce, 3), other.block(nonce, 3, 1, "cold")
        assert all(len(times) == 3 for times in theirs)
        (kept,) = read(memory[1], other.snapshot(memory[1]))
        kept = kept.clone()
        (again,) = read(memory[1], one.snapshot([memory[1]]))
        assert torch.equal(kept, again) and not torch.equal(kept, before.tanh())
        (exact,) = read(memory[1], one.expect_kept([memory[1]], drawn, {"dimension": 0, "size": 64, "inputs": [0]}))
        assert exact.dtype is torch.float64
        torch.testing.assert_close(kept.double(), exact, rtol=1e-5, atol=1e-6)
    assert not torch.equal(given[0], before), "values change in the very memory that was lent"


def test_a_draw_is_told_from_another(memory: list[int]) -> None:
    one, drawn = staged(memory)
    assert one.draws_again(memory, drawn, "get_inputs", 2)
    assert not one.draws_again(memory, drawn, "get_inputs", 3)


def test_inputs_that_share_memory_are_taken_apart() -> None:
    base = torch.arange(12.0)
    own = torch.zeros(3)
    one, two, part, alone = apart([base, base, base[:4], own])
    assert len({t.data_ptr() for t in (base, one, two, part)}) == 4 and alone is own
    assert torch.equal(part, base[:4])


def test_a_descriptor_is_closed_once_its_memory_is_mapped() -> None:
    descriptors = [os.memfd_create("inputs")]
    spec = write(descriptors[0], torch.arange(9))
    number = descriptors[0]
    (values,) = read_and_close(descriptors, 0, spec)
    assert descriptors == [-1] and torch.equal(values, torch.arange(9))
    with pytest.raises(OSError, match="descriptor"):
        os.fstat(number)
