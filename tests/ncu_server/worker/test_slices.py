"""What should be seen, computed in slices where gigabytes would not fit in double precision at once."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ncu_server.worker import reference as module
from ncu_server.worker.answers import Expected
from ncu_server.worker.checking.slices import Cut, agree, cuts
from ncu_server.worker.memory import MemoryWatch
from ncu_server.worker.reference import Reference
from ncu_server.worker.tensors import read

PROBLEM = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, *given):
        {body}

def get_inputs():
    return [{inputs}]
"""
TWO = "torch.randn(12, 8), torch.randn(8, 12)"
CUT = {
    "one by one": ("return torch.nn.functional.gelu(given[0])", "torch.randn(33, 40)", 0),
    "rows": ("return torch.softmax(given[0], 1) * 2", "torch.randn(33, 40)", 0),
    "columns": ("return torch.cumsum(given[0], 0)", "torch.randn(33, 40)", 1),
    "a product's left side alone": ("return given[0] @ given[1]", "torch.randn(16, 16), torch.randn(16, 16)", 0),
    "a batch of products": ("return torch.bmm(*given)", "torch.randn(5, 6, 7), torch.randn(5, 7, 4)", 0),
    "a layer's images": ("return self.layer(given[0])", "torch.randn(6, 3, 9, 9)", 0),
    "two outputs": ("return given[0].exp(), given[0].sum(1)", "torch.randn(9, 4)", 0),
}
WHOLE = {
    "what all have in common": ("return given[0] - given[0].mean()", "torch.randn(33, 40)"),
    "statistics of a batch": ("return self.layer(given[0])", "torch.randn(6, 3, 9, 9)"),
    "a loss": ("return given[0].square().mean()", "torch.randn(33, 40)"),
    "sums along all": ("return given[0].cumsum(0).cumsum(1)", "torch.randn(33, 40)"),
    "a last tenth that is treated otherwise": (
        "x = given[0]; return torch.cat([x[:30].sigmoid(), x[30:].tanh()])",
        "torch.randn(33)",
    ),
    "an input that changes": ("given[0].add_(1); return given[0] * 2", "torch.randn(33, 40)"),
}


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[int]]:
    """Two descriptors, in a folder in which a problem's file may lie."""
    monkeypatch.setenv("OMP_NUM_THREADS", str(torch.get_num_threads()))
    monkeypatch.chdir(tmp_path)
    fds = [os.memfd_create(name) for name in ("inputs", "expected")]
    yield fds
    for fd in fds:
        os.close(fd)


def opened(memory: list[int], monkeypatch: pytest.MonkeyPatch, source: str, most: int) -> Reference:
    monkeypatch.setattr(module, "IN_ONE_BYTES", most)
    monkeypatch.setattr(module, "SHARED_BYTES", most)
    monkeypatch.setattr("ncu_server.worker.checking.slices.SLICE_BYTES", 700)
    one = Reference()
    one.open_reference(memory, source, "cpu", 1, None)
    return one


def answered(memory: list[int], monkeypatch: pytest.MonkeyPatch, source: str, most: int) -> Expected:
    one = opened(memory, monkeypatch, source, most)
    return one.expect(memory, one.draw(memory, "get_inputs", 2)["inputs"])


def expected(memory: list[int], monkeypatch: pytest.MonkeyPatch, source: str, most: int) -> list[torch.Tensor]:
    return [t.clone() for t in read(memory[1], answered(memory, monkeypatch, source, most)["stored"])]


def taken(monkeypatch: pytest.MonkeyPatch) -> list[Cut | None]:
    """The cuts that are taken from here on."""
    found: list[Cut | None] = []
    cut = Reference._cut

    def noted(*given: object) -> Cut | None:
        found.append(cut(*given))  # type: ignore[arg-type]
        return found[-1]

    monkeypatch.setattr(Reference, "_cut", noted)
    return found


@pytest.mark.parametrize("name", CUT)
def test_slices_say_what_the_whole_call_says(memory: list[int], monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    body, inputs, dimension = CUT[name]
    source = PROBLEM.format(init="self.layer = torch.nn.Conv2d(3, 4, 3)", body=body, inputs=inputs)
    whole, found = expected(memory, monkeypatch, source, 1 << 30), taken(monkeypatch)
    sliced = expected(memory, monkeypatch, source, 0)
    assert [one and one.dimension for one in found] == [dimension]
    for one, other in zip(whole, sliced, strict=True):
        assert one.dtype == other.dtype == torch.float64
        torch.testing.assert_close(one, other, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("name", CUT)
def test_slices_allow_what_the_whole_call_allows(memory: list[int], monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    body, inputs, _ = CUT[name]
    source = PROBLEM.format(init="self.layer = torch.nn.Conv2d(3, 4, 3)", body=body, inputs=inputs)
    whole, sliced = (answered(memory, monkeypatch, source, most) for most in (1 << 30, 0))
    for one, other in zip(whole["units"], sliced["units"], strict=True):
        assert one and other and one["grain"] == other["grain"]
        assert [level[1] for level in other["levels"]] == pytest.approx([level[1] for level in one["levels"]], rel=1e-6)
    assert [one and one["ran"] for one in whole["precision"]] == pytest.approx(
        [one and one["ran"] for one in sliced["precision"]], rel=1e-6
    )


@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize(
    ("body", "inputs", "slices"), [(*one[:2], True) for one in CUT.values()] + [(*one, False) for one in WHOLE.values()]
)
def test_what_is_expected_comes_out_the_same_again(
    memory: list[int], monkeypatch: pytest.MonkeyPatch, body: str, inputs: str, slices: bool, rounded: bool
) -> None:
    if rounded:
        monkeypatch.setattr("ncu_server.worker.checking.tolerance.DOUBLE_BYTES", 0)
    init = f"self.layer = torch.nn.{'Conv2d(3, 4, 3)' if slices else 'BatchNorm2d(3)'}"
    one = opened(memory, monkeypatch, PROBLEM.format(init=init, body=body, inputs=inputs), 0)
    drawn = one.draw(memory, "get_inputs", 2)["inputs"]
    first = one.expect(memory, drawn)
    assert (first["slices"] is not None) is slices
    want = [t.clone() for t in read(memory[1], first["stored"])]
    again = one.expect_again(memory, drawn, first["effects"], first["slices"])
    assert again == first["stored"]
    assert {t.dtype for t in want if t.is_floating_point()} == {torch.float32 if rounded else torch.float64}
    for kept, other in zip(want, read(memory[1], again), strict=True):
        torch.testing.assert_close(kept, other, rtol=2e-7 if rounded else 1e-13, atol=1e-13)


def test_numbers_and_what_is_none_stand_in_slices_as_in_the_whole(
    memory: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    body = "x = given[0]; return x.log(), (x / 0.0), x > 0, x.argmax(1), x.to(torch.bfloat16), x.double() / 3"
    source = PROBLEM.format(init="pass", body=body, inputs="torch.randn(33, 40)")
    whole, sliced = (expected(memory, monkeypatch, source, most) for most in (1 << 30, 0))
    for one, other in zip(whole, sliced, strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=1e-13, atol=1e-13, equal_nan=True)


def test_exact_values_take_no_more_than_two_calls_do(memory: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes after the calls: the exact values and what is stored of them never lie beside all else in double."""
    size = 64 << 20
    monkeypatch.setattr("ncu_server.worker.checking.tolerance.DOUBLE_BYTES", 0)
    source = PROBLEM.format(init="pass", body="return given[0].tanh()", inputs="torch.randn(1024, 16384)")
    one = opened(memory, monkeypatch, source, 0)
    drawn = one.draw(memory, "get_inputs", 2)["inputs"]
    with MemoryWatch(True) as watch:
        one.expect(memory, drawn)
    assert watch.peak["host_bytes"] < 4.5 * size, "the mapped inputs and their pages count, too"


@pytest.mark.parametrize(("body", "shares"), [("", True), ("self.layer.weight.add_(1); ", False)])
def test_copies_share_gigabytes_of_parameters_that_no_call_changes(
    memory: list[int], monkeypatch: pytest.MonkeyPatch, body: str, shares: bool
) -> None:
    init, calls = "self.layer = torch.nn.Linear(40, 9)", f"{body}return self.layer(given[0])"
    one = opened(memory, monkeypatch, PROBLEM.format(init=init, body=calls, inputs="torch.randn(33, 40)"), 0)
    drawn = one.draw(memory, "get_inputs", 2)["inputs"]
    first = [t.clone() for t in read(memory[1], one.expect(memory, drawn)["stored"])]
    own = one._model.layer.weight
    assert (one._copy(one._model).layer.weight is own) is shares
    again = [t.clone() for t in read(memory[1], one.expect(memory, drawn)["stored"])]
    assert all(map(torch.equal, first, again)), "each call begins with the parameters as they were made"


@pytest.mark.parametrize("name", WHOLE)
def test_what_hangs_on_other_indices_is_not_cut(memory: list[int], monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    body, inputs = WHOLE[name]
    source = PROBLEM.format(init="self.layer = torch.nn.BatchNorm2d(3)", body=body, inputs=inputs)
    found = taken(monkeypatch)
    expected(memory, monkeypatch, source, 0)
    assert found == [None]


def test_of_inputs_that_are_cut_together_or_alone_all_are_tried() -> None:
    one, other = torch.zeros(4, 4), torch.zeros(4, 4)
    assert [c.inputs for c in cuts([one, other], [one]) if c.dimension == 0] == [(0, 1), (0,), (1,)]
    assert not list(cuts([torch.zeros(3)], [torch.zeros(())]))


def test_one_index_agrees_but_for_rounding() -> None:
    whole = torch.randn(1, 1000)
    assert agree(whole * (1 + 1e-7), whole)
    assert not agree(whole + 1e-3, whole)
    assert not agree(torch.where(whole > 2, torch.inf, whole), whole)
    assert not agree(whole.double(), whole)
