from typing import Any

import pytest

from ncu_server.compare import BOUND, largest, structure_fault, value_fault

TENSOR = {"tensor": 0}
SHAPE = [{"name": "output 0", "shape": [2, 3], "dtype": "float32"}]


def spec(structure: Any, tensors: list[dict[str, Any]]) -> dict[str, Any]:
    return {"structure": structure, "tensors": tensors}


def test_equal_structure_is_no_fault() -> None:
    assert structure_fault(spec(TENSOR, SHAPE), SHAPE, spec(TENSOR, SHAPE)) is None


def test_each_difference_is_put_in_words() -> None:
    expected = spec(TENSOR, SHAPE)
    assert "a tuple of 1" in (structure_fault(expected, SHAPE, spec({"tuple": [TENSOR]}, SHAPE)) or "")
    other = [{"shape": [3, 2], "dtype": "float32"}]
    assert "shape [3, 2]" in (structure_fault(expected, SHAPE, spec(TENSOR, other)) or "")
    other = [{"shape": [2, 3], "dtype": "float16"}]
    assert "dtype float16" in (structure_fault(expected, SHAPE, spec(TENSOR, other)) or "")
    assert "None" in (structure_fault(expected, SHAPE, spec({"value": None}, [])) or "")


def test_a_value_outside_the_bound_is_described() -> None:
    row = {"error": 100.0, "outside": 2, "total": 8, "index": 5, "want": 1.0, "have": 1.5}
    fault = value_fault(["output 0"], [row], BOUND) or ""
    assert "2 of 8" in fault and "flat index 5" in fault and "25.0%" in fault
    assert value_fault(["output 0"], [row | {"outside": 0}], BOUND) is None
    tail = row | {"shape": [2, 4], "span": [[0, 1], [3, 3]], "zeros": 1, "nans": 0}
    assert "; all of them lie in [0 to 1, 3] of [2, 4]; 50% of them are 0" in (
        value_fault(["output 0"], [tail], BOUND) or ""
    )
    assert "lie in" not in (value_fault(["output 0"], [tail | {"span": [[0, 1], [0, 3]]}], BOUND) or "")
    assert largest([row, row | {"error": 3.0}]) == 100.0


def test_the_judge_sees_where_values_are_off(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from ncu_server.worker import judge

    monkeypatch.setattr(judge, "CHUNK", 7)
    want = torch.ones(4, 10)
    have = want.clone()
    have[1:3, 8:] = 0.0
    have[2, 9] = torch.nan
    found = judge._compare(want, have.reshape(-1), 1e-6, 64.0)
    assert found["span"] == [[1, 2], [8, 9]] and (found["outside"], found["zeros"], found["nans"]) == (4, 3, 1)
    assert judge._compare(want, want.reshape(-1), 1e-6, 64.0)["span"] is None
    scalar = judge._compare(torch.tensor(1.0), torch.tensor([2.0]), 1e-6, 64.0)
    assert scalar["outside"] == 1 and scalar["span"] == []
