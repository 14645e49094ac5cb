"""What the reference is compared with: a run in float64, whatever precision its own code names."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ncu_server.worker.reference import Reference  # noqa: E402
from ncu_server.worker.tensors import read  # noqa: E402

PROBLEM = """
import torch, torch.nn as nn, torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        {body}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""


def expected(body: str, inputs: str, init: str = "pass") -> tuple["torch.Tensor", "torch.Tensor", dict[str, Any]]:
    """The input, the first tensor that should be seen and what `expect` says of it."""
    fds = [os.memfd_create(name) for name in ("inputs", "expected")]
    reference = Reference()
    try:
        reference.open_reference(fds, PROBLEM.format(init=init, body=body, inputs=inputs), "cpu", 1, None)
        drawn = reference.draw(fds, "get_inputs", 2)["inputs"]
        told = reference.expect(fds, drawn)
        (x,), (first, *_) = read(fds[0], drawn), read(fds[1], told["stored"])
        return x.clone(), first.clone(), told
    finally:
        for fd in fds:
            os.close(fd)


ROWS = "torch.rand(8, 64)"


@pytest.fixture
def memory() -> Iterator[list[int]]:
    """Two descriptors."""
    fds = [os.memfd_create(name) for name in ("inputs", "expected")]
    yield fds
    for fd in fds:
        os.close(fd)


@pytest.fixture(autouse=True)
def worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As many threads as here, and a directory in which a problem's file may lie."""
    monkeypatch.setenv("OMP_NUM_THREADS", str(torch.get_num_threads()))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "body",
    [
        "return (x.float() / 3).exp()",
        "return (x.to(torch.float32) / 3).exp()",
        "return (x.to(dtype=torch.float) / 3).exp()",
        "return (x.type(torch.FloatTensor) / 3).exp()",
        "return (x.type('torch.FloatTensor') / 3).exp()",
        "return (x.double().to(x.dtype) / 3).exp()",
        "return (x.type_as(torch.zeros(1, dtype=torch.float32)) / 3).exp()",
        "h = torch.zeros(8, 64, dtype=torch.float32); h += x / 3; return h.exp()",
        "h = torch.empty(8, 64); torch.div(x, 3, out=h); return h.exp()",
        "return x.new_tensor([3.0]).reciprocal().mul(x).exp()",
        "return torch.exp(torch.complex(x, x * 0).to(torch.complex64) / 3).real.float()",
        "assert x.dtype == torch.float32; return {torch.float32: x / 3}[x.dtype].exp()",
        "return torch.ops.aten.to.dtype(x, torch.float32).div(3).exp()",
        "return torch.exp(x / 3).view(torch.int32).view(torch.float32) * 0 + (x / 3).exp()",
    ],
)
def test_float32_asked_for_inside_is_float64_in_what_is_expected(body: str) -> None:
    x, right, told = expected(body, ROWS)
    assert (right.dtype, told["note"]) == (torch.float64, None)
    assert torch.allclose(right, torch.exp(x.double() / 3), rtol=1e-14, atol=0)
    assert torch.get_default_dtype() is torch.float32


@pytest.mark.parametrize(
    "init",
    [
        "self.net = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64))",
        "self.net = nn.TransformerEncoderLayer(64, 4, 64, dropout=0.0, batch_first=True).eval()",
        "self.net = nn.BatchNorm1d(64)",
        "self.net = nn.Softmax(1)",
    ],
)
def test_modules_run_in_float64_where_their_input_is_cast_to_float32(init: str) -> None:
    _, right, told = expected("return self.net(x.float())", ROWS, init)
    _, same, _ = expected("return self.net(x)", ROWS, init)
    assert told["note"] is None
    assert torch.allclose(right, same, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("body", ["out, _ = self.net(x.float()); return out", "return self.net(x.float())[0]"])
def test_recurrent_modules_run_in_float64(body: str) -> None:
    _, right, told = expected(body, ROWS, "self.net = nn.LSTM(64, 16)")
    assert told["note"] is None
    assert not torch.equal(right, right.float().double())


@pytest.mark.parametrize("half", ["half()", "bfloat16()", "to(torch.float16)", "type(torch.BFloat16Tensor)"])
def test_half_precision_asked_for_inside_stays(half: str) -> None:
    x, right, _ = expected(f"return x.{half}.float() * 3", ROWS)
    assert torch.equal(right, eval(f"x.{half}", {"x": x, "torch": torch}).double() * 3)


@pytest.mark.parametrize("name", ["tiny", "eps", "min"])
@pytest.mark.parametrize("dtype", ["x.dtype", "torch.float32", "x.float().dtype", "torch.result_type(x, x)"])
def test_the_limits_of_a_dtype_are_those_of_the_one_asked_for(name: str, dtype: str) -> None:
    x, right, _ = expected(f"return x.float() + torch.finfo({dtype}).{name}", ROWS)
    assert torch.equal(right, x.double() + getattr(torch.finfo(torch.float32), name))


def test_the_limits_of_float64_stay_in_a_problem_of_float64() -> None:
    _, right, _ = expected("return (x.float() * 0 + torch.finfo(x.dtype).tiny).double()", "torch.rand(8).double()")
    assert float(right[0]) == torch.finfo(torch.float64).tiny


@pytest.mark.parametrize(
    "noise",
    [
        "torch.rand(8, 64, generator=g)",
        "torch.rand(8, 64, generator=g, dtype=torch.float32)",
        "torch.empty(8, 64).normal_(generator=g)",
        "torch.empty_like(x).uniform_(generator=g)",
        "torch.normal(torch.zeros(8, 64), 1.0, generator=g)",
        "nn.init.normal_(torch.empty(8, 64), generator=g)",
        "torch.randn(8, 64, generator=g, out=torch.empty(8, 64))",
    ],
)
def test_seeded_random_numbers_are_those_that_the_model_draws(noise: str) -> None:
    x, right, told = expected(f"g = torch.Generator().manual_seed(5); return x.float() * 2 + {noise}", ROWS)
    drawn = eval(noise, {"torch": torch, "nn": torch.nn, "x": x, "g": torch.Generator().manual_seed(5)})
    assert told["note"] is None
    assert torch.equal(right, x.double() * 2 + drawn.double())


CUT = "torch.from_numpy(x.numpy().astype('float32'))"


def test_a_model_that_mixes_precisions_runs_once_its_casts_are_answered() -> None:
    x, right, told = expected(f"return {CUT} @ torch.ones(64, 1, dtype=torch.float32)", ROWS)
    assert told["note"] is None
    assert torch.allclose(right, x.double().sum(1, keepdim=True))


def test_inputs_that_a_model_asserts_against_are_none_of_the_sharper_ones(memory: list[int]) -> None:
    """Its output on drawn ones is zero, so that others are looked for."""
    reference, body = Reference(), "assert x.abs().max() < 20; return torch.relu(x - 15)"
    reference.open_reference(memory, PROBLEM.format(init="pass", body=body, inputs="torch.rand(64, 8)"), "cpu", 1, None)
    (made,) = read(memory[0], reference.sharpen(memory, "get_inputs", 2, 3, [])["inputs"])
    assert float(made.abs().max()) < 20


@pytest.mark.parametrize(
    "init",
    [
        "w = nn.Parameter(torch.full((4,), 1.0)); self.norm = w.norm()",
        "w = torch.ones(3, requires_grad=True); self.norm = torch.autograd.grad((w * 2).sum(), w)[0][0]",
    ],
    ids=["of its parameters", "with gradients"],
)
def test_a_constructor_may_compute(init: str) -> None:
    x, right, _ = expected("return x * self.norm", ROWS, init)
    assert torch.equal(right, 2 * x.double())


def test_what_is_expected_does_not_depend_on_earlier_timed_calls(memory: list[int]) -> None:
    reference, init = Reference(), "self.register_buffer('calls', torch.zeros(()))"
    body = "self.calls += 1; return x + self.calls"
    reference.open_reference(memory, PROBLEM.format(init=init, body=body, inputs="torch.rand(64, 8)"), "cpu", 1, None)
    drawn = reference.draw(memory, "get_inputs", 2)["inputs"]
    first = reference.expect(memory, drawn)
    right = [t.clone() for t in read(memory[1], first["stored"])]
    told = reference.stage(memory, drawn, first["effects"] | {"still": []})
    assert told["sets"] == 1  # so that each kept call begins from the first state
    reference.block(memory, nonce=1, count=3)
    again = read(memory[1], reference.expect(memory, drawn)["stored"])
    assert all(torch.equal(one, other) for one, other in zip(right, again, strict=True))


def test_a_model_that_runs_in_no_float64_is_compared_with_its_own_precision() -> None:
    _, right, told = expected(f"return {CUT} @ self.w", ROWS, "self.w = nn.Parameter(torch.full((64, 1), 0.5))")
    assert "does not run in float64" in told["note"]
    assert right.dtype is torch.float64 and right.shape == (8, 1)
