"""What a delivered module does with a call that was not verified: it refuses, and never computes wrongly."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernel_agent.delivery.module import delivered
from kernel_agent.run.types import Problem
from tests.support.deliveries import CONTRACT, KERNEL, PROBLEM, description, ran

SAID = """
import contextlib, copy, torch
from best_kernel import *
import best_kernel
torch.manual_seed(0)
x = torch.randn(64, 256)
model, original = best_kernel.ModelNew(256), best_kernel.Model(256)
original.load_state_dict(model.state_dict())

def said(work, right=None):
    torch._dynamo.reset()
    try:
        with torch.no_grad():
            out = work()
        print("right" if right is None or torch.allclose(out, right) else "WRONG")
    except Exception as fault:
        print(type(fault).__name__, str(fault).replace("\\n", " "))
"""
OFFSET = "def forward(self, x, offset=0.5):"
Y = {"shape": [64, 256], "dtype": "float32", "strides": [256, 1]}


def put(place: Path, contract: dict[str, Any], problem: str = PROBLEM, kernel: str = KERNEL) -> None:
    found = replace(description(), contract=contract)
    (place / "best_kernel.py").write_text(delivered(problem + kernel, Problem("p", problem, "cpu"), found, "tvm_ffi"))


def said(place: Path, lines: Sequence[str]) -> list[str]:
    return ran(place, SAID + "\n".join(lines), TVM_FFI_CACHE_DIR="/tmp/tests-of-delivery")


def defaulted(place: Path, offset: bool) -> None:
    """A kernel whose second argument has a default, verified with or without a value of it."""
    contract = json.loads(json.dumps(CONTRACT))
    if not offset:
        contract |= {"leaves": ["tensor"], "form": ["tuple", [["list", [None]], ["dict", {}]]]}
    texts = [text.replace("def forward(self, x, offset):", OFFSET) for text in (PROBLEM, KERNEL)]
    put(place, contract, *texts)


CALLS = ["x", "x, 0.5", "x, offset=0.5", "x, 0.7", "x, None", "x, True", "x, 1"]
ONE = "ModelNew was verified without another value of offset than its default"
OTHER = "ModelNew was verified for a float as one of its inputs, which is {} here"


@pytest.mark.parametrize(
    ("offset", "answers"),
    [
        (False, ["right", "right", "right", ONE, ONE, ONE, ONE]),
        (True, ["right", "right", "right", "right", OTHER.format(None), OTHER.format(True), "right"]),
    ],
)
def test_a_default_may_be_given_or_left_out_and_no_other_value(
    tmp_path: Path, offset: bool, answers: list[str]
) -> None:
    defaulted(tmp_path, offset)
    lines = [
        f"said(lambda: model({call}), original({call}) if {want == 'right'} else None)"
        for call, want in zip(CALLS, answers, strict=True)
    ]
    for found, want in zip(said(tmp_path, lines), answers, strict=True):
        assert want in found


@pytest.mark.long
@pytest.mark.parametrize("offset", [True, False])
def test_under_torch_compile_defaults_are_the_same_and_a_refusal_says_why(tmp_path: Path, offset: bool) -> None:
    defaulted(tmp_path, offset)
    compiled = "torch.compile(model, fullgraph=True)"
    lines = [f"said(lambda: {compiled}({call}), original({call}))" for call in ("x", "x, 0.5", "x, offset=0.5")]
    lines.append(f"said(lambda: {compiled}(x, None))")
    *right, refused = said(tmp_path, lines)
    assert right == ["right"] * 3
    assert (OTHER.format(None) if offset else ONE) in refused


def test_a_default_that_is_another_one_than_the_originals_is_no_verified_value(tmp_path: Path) -> None:
    texts = [text.replace("def forward(self, x, offset):", OFFSET) for text in (PROBLEM, KERNEL)]
    put(tmp_path, CONTRACT, texts[0], texts[1].replace("offset=0.5", "offset=0.25"))
    given, left_out = said(tmp_path, ["said(lambda: model(x, 0.5), original(x))", "said(lambda: model(x))"])
    assert given == "right" and "ModelNew was verified with a value of offset" in left_out


def test_autocast_is_refused_or_left_to_the_original(tmp_path: Path) -> None:
    put(tmp_path, CONTRACT)
    lines = [
        "said(lambda: model(x, 0.5), original(x, 0.5))",
        "half = torch.autocast('cpu', dtype=torch.bfloat16); half.__enter__()",
        "said(lambda: model(x, 0.5))",
        "best_kernel.ModelNew.original_elsewhere = True",
        "said(lambda: model(x, 0.5), original(x, 0.5))",
        "half.__exit__(None, None, None); best_kernel.ModelNew.original_elsewhere = False",
        "said(lambda: model(x, 0.5), original(x, 0.5))",
    ]
    before, on, elsewhere, after = said(tmp_path, lines)
    assert (before, elsewhere, after) == ("right",) * 3
    assert on.startswith("ValueError ModelNew was verified without torch.autocast, which is on here: find a kernel")


ELSEWHERE = [
    ("model(x.to_sparse(), 0.5)", "ValueError ModelNew was verified for dense tensors; it was called with one of"),
    ("model(x.to('meta'), 0.5)", "ValueError This kernel runs on cpu, and its inputs are on meta: move them."),
    ("torch.jit.trace(lambda y: model(y, 0.5), x)(x)", "ValueError torch.jit.trace cannot follow this kernel: find a"),
    ("learn()", "RuntimeError This kernel gives no gradients: call it under torch.no_grad(), or detach its inputs."),
]
LEARN = """
@torch.enable_grad()
def learn():
    y = x.clone().requires_grad_()
    model(y, 0.5).sum().backward()
    return y.grad
"""


def test_what_a_kernel_cannot_do_is_refused_or_left_to_the_original(tmp_path: Path) -> None:
    put(tmp_path, CONTRACT)
    lines = [LEARN, *(f"said(lambda: {call})" for call, _ in ELSEWHERE)]
    lines.append("best_kernel.ModelNew.original_elsewhere = True")
    lines += [f"said(lambda: {call})" for call, _ in ELSEWHERE[3:]]
    lines.append("said(lambda: model.to('meta')(x.to('meta'), 0.5))")
    answers = said(tmp_path, lines)
    for found, (_, want) in zip(answers, ELSEWHERE, strict=False):
        assert found.startswith(want)
    assert answers[len(ELSEWHERE) :] == ["right"] * 2


FUNCTIONAL = [
    "def call(scale): return torch.func.functional_call(model, {'scale': scale}, (x, 0.5))",
    "def right(scale): return torch.func.functional_call(original, {'scale': scale}, (x, 0.5))",
    "one, other = torch.rand(256), torch.rand(256)",
]


def test_functional_call_uses_the_weights_that_are_given_and_its_own_after_it(tmp_path: Path) -> None:
    put(tmp_path, CONTRACT)
    lines = [
        *FUNCTIONAL,
        "said(lambda: model(x, 0.5), original(x, 0.5))",
        "said(lambda: call(one), right(one))",
        "said(lambda: model(x, 0.5), original(x, 0.5))",
        "said(lambda: call(torch.rand(512)[::2]))",
    ]
    *fine, strided = said(tmp_path, lines)
    assert fine == ["right"] * 3
    assert strided.startswith("ValueError scale has strides [2]; this kernel was verified with [1]: give it memory")


@pytest.mark.long
def test_functional_call_under_torch_compile_uses_the_weights_that_are_given(tmp_path: Path) -> None:
    put(tmp_path, CONTRACT)
    lines = [
        *FUNCTIONAL,
        "fast = torch.compile(call, fullgraph=True)",
        "said(lambda: fast(one), right(one))",
        "said(lambda: fast(other), right(other))",
        "said(lambda: torch.compile(model, fullgraph=True)(x, 0.5), original(x, 0.5))",
        "said(lambda: fast(torch.rand(3)))",
    ]
    *fine, short = said(tmp_path, lines)
    assert fine == ["right"] * 3
    assert "scale is float32 [3]; this kernel was verified with float32 [256]." in short


def test_other_memory_behind_a_parameter_is_looked_at_before_the_next_call(tmp_path: Path) -> None:
    put(tmp_path, CONTRACT)
    lines = ["said(lambda: model(x, 0.5), original(x, 0.5))"]
    for data in ("rand(3)", "rand(512)[::2]", "rand(257)[1:]", "rand(256).double()"):
        lines += [f"model.scale.data = torch.{data}", "said(lambda: model(x, 0.5))"]
    lines += ["model.scale.data = original.scale.data.clone()", "said(lambda: model(x, 0.5), original(x, 0.5))"]
    first, short, strided, unaligned, double, last = said(tmp_path, lines)
    assert (first, last) == ("right", "right")
    assert short == "ValueError scale is float32 [3]; this kernel was verified with float32 [256]."
    assert "scale has strides [2]; this kernel was verified with [1]" in strided
    assert "scale has strides [1] and does not begin at 16 bytes" in unaligned
    assert double == "ValueError scale is float64 [256]; this kernel was verified with float32 [256]."


RECORDS = """import argparse
from dataclasses import dataclass
import torch


@dataclass(frozen=True)
class Batch:
    x: torch.Tensor
    shift: torch.Tensor
    gain: float = 2.0


class Plain:
    gain = 1.0

    def __init__(self, x):
        self.x = x
        self.gain = 3.0


class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()

    def forward(self, batch, plain):
        return batch.x * batch.gain + batch.shift + plain.x * plain.gain


class ModelNew(Model):
    def __init__(self, width):
        super().__init__(width)

    def forward(self, batch, plain):
        assert all(t.stride() == (256, 1) for t in (batch.x, batch.shift, plain.x))
        return super().forward(batch, plain)
"""


def test_tensors_in_records_are_checked_as_others_are(tmp_path: Path) -> None:
    record = ["record", {"x": None, "shift": None, "gain": None}], ["record", {"gain": None, "x": None}]
    call = {
        "takes": [Y, Y, Y],
        "gives": [{"shape": [64, 256], "dtype": "float32"}],
        "held": [None, None, None, [3.0], None],
        "leaves": ["tensor", "tensor", "float", "float", "tensor"],
        "form": ["tuple", [["list", [*record]], ["dict", {}]]],
    }
    contract = CONTRACT | {name: call[name] for name in ("leaves", "form")}
    put(tmp_path, contract | {"calls": [call], "is_plain": False, "parameters": {}}, RECORDS, "")
    lines = [
        "def both(batch, plain): said(lambda: model(batch, plain), original(batch, plain))",
        "y = torch.randn(64, 256)",
        "both(Batch(x, y), Plain(x))",
        "both(Batch(x, y, 0.5), Plain(x))",
        "both(Batch(x.T.contiguous().T, y), Plain(torch.empty(64 * 256 + 1)[1:].view(64, 256).copy_(x)))",
        "both(Batch(x, y[:1]), Plain(x))",
        "both(Batch(x.double(), y.double()), Plain(x.double()))",
        "both(Batch(x, 1.0), Plain(x))",
        "odd = Plain(x); odd.gain = 2.0; both(Batch(x, y), odd)",
        "said(lambda: model((x, y, 2.0), Plain(x)))",
    ]
    same, gain, strided, short, double, plain, held, listed = said(tmp_path, lines)
    assert (same, gain, strided) == ("right",) * 3
    assert "it was called with float32 [64, 256], float32 [1, 256], float32 [64, 256]" in short
    assert "it was called with float64 [64, 256], float64" in double
    assert "it was called with float32 [64, 256], float32 [64, 256]: find" in plain
    assert "ModelNew was verified for 3.0 as one of its inputs, which is 2.0 here" in held
    assert "right" not in listed
