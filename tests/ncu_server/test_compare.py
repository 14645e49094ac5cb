from typing import Any

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
    assert largest([row, row | {"error": 3.0}]) == 100.0
