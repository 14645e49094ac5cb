from typing import Any

import pytest

from ncu_server.judge.replies import tree_fault
from ncu_server.rules.comparison import BOUND, ordered, structure_fault, value_fault

TENSOR = {"tensor": 0}
SHAPE = [{"name": "output 0", "shape": [2, 3], "dtype": "float32", "bytes": 24}]


def spec(structure: Any, tensors: list[dict[str, Any]]) -> dict[str, Any]:
    return {"structure": structure, "tensors": tensors}


def test_equal_structure_is_no_fault() -> None:
    assert structure_fault(spec(TENSOR, SHAPE), SHAPE, spec(TENSOR, SHAPE)) is None


def test_each_difference_is_put_in_words() -> None:
    expected = spec(TENSOR, SHAPE)
    assert "a tuple of 1" in (structure_fault(expected, SHAPE, spec({"tuple": [TENSOR]}, SHAPE)) or "")
    other = [{"shape": [3, 2], "dtype": "float32", "bytes": 24}]
    assert "shape [3, 2]" in (structure_fault(expected, SHAPE, spec(TENSOR, other)) or "")
    other = [{"shape": [2, 3], "dtype": "float16", "bytes": 12}]
    assert "dtype float16" in (structure_fault(expected, SHAPE, spec(TENSOR, other)) or "")
    forged = [SHAPE[0] | {"bytes": 7}]
    assert "bytes 7" in (structure_fault(expected, SHAPE, spec(TENSOR, forged)) or "")
    assert "None" in (structure_fault(expected, SHAPE, spec({"value": None}, [])) or "")


def named(*entries: tuple[str, Any]) -> dict[str, Any]:
    return {"dict": [list(entry) for entry in entries]}


def test_dicts_are_equal_in_any_order_of_keys_and_their_tensors_are_found() -> None:
    small, large = ({"shape": [n], "dtype": "float32", "bytes": 4 * n} for n in (2, 3))
    want = spec({"tuple": [named(("a", {"tensor": 0}), ("b", {"tensor": 1}))]}, [small, large])
    have = spec({"tuple": [named(("b", {"tensor": 0}), ("a", {"tensor": 1}))]}, [large, small])
    told = [{"name": f"output {i}", **t} for i, t in enumerate(want["tensors"])]
    assert structure_fault(want, told, have) is None
    assert ordered(want, have, ["b", "a"]) == ["a", "b"]
    wrong = structure_fault(want, told, spec(have["structure"], [small, large])) or ""
    assert wrong == "output 0 has shape [3], the reference's has [2]"


@pytest.mark.parametrize(
    ("want", "have", "words"),
    [
        (
            {"tuple": [TENSOR, {"value": 3.25}]},
            {"tuple": [TENSOR, {"value": 3.5}]},
            "returns 3.5 at [1] where the reference returns 3.25",
        ),
        (
            named(("a", {"list": [{"value": 1}]})),
            named(("a", {"list": [{"value": "1"}]})),
            "returns '1' at ['a'][0] where the reference returns 1",
        ),
        (
            {"tuple": [{"dtype": "int8"}]},
            {"tuple": [{"value": "int8"}]},
            "returns 'int8' at [0] where the reference returns torch.int8",
        ),
        (named(("a", TENSOR)), named(("b", TENSOR)), "returns a dict with keys b where the reference returns a dict"),
        ({"tuple": []}, {"list": []}, "returns a list of 0 where the reference returns a tuple of 0"),
        ({"value": 1.0}, {"value": float("nan")}, "returns nan where the reference returns 1.0"),
        ({"value": 0.0}, {"value": 1e-30}, "returns 1e-30 where the reference returns 0.0"),
    ],
)
def test_the_part_that_differs_is_named(want: Any, have: Any, words: str) -> None:
    assert (structure_fault(spec(want, SHAPE), SHAPE, spec(have, SHAPE)) or "").startswith(words)


@pytest.mark.parametrize(
    ("want", "have"), [(3.25, 3.25 * (1 + 2**-22)), (float("nan"), float("nan")), (float("inf"), float("inf")), (1, 1)]
)
def test_plain_numbers_agree_but_for_the_rounding_of_float32(want: float, have: float) -> None:
    assert structure_fault(spec({"value": want}, []), [], spec({"value": have}, [])) is None


@pytest.mark.parametrize(
    "structure",
    [
        {},
        {"tensor": 1},
        {"tensor": 0, "value": 1},
        {"tuple": [{"tensor": 0}, {"tensor": 0}]},
        {"dict": [["a"]]},
        {"dict": {"a": {"tensor": 0}}},
        {"value": [1]},
        {"list": 3},
    ],
)
def test_a_tree_that_is_none_is_nonsense(structure: Any) -> None:
    place = {"shape": [1], "dtype": "float32", "strides": [1], "offset": 0, "bytes": 4}
    assert tree_fault({"structure": structure, "tensors": [place], "bytes": 64}, 64)


def test_a_tensor_that_begins_within_an_element_is_nonsense() -> None:
    place = {"shape": [1], "dtype": "float32", "strides": [1], "offset": 64, "bytes": 4}
    assert tree_fault({"structure": TENSOR, "tensors": [place], "bytes": 128}, 128) is None
    assert tree_fault({"structure": TENSOR, "tensors": [place | {"offset": 66}], "bytes": 128}, 128)


def test_a_tensor_that_lies_beyond_the_memory_is_nonsense() -> None:
    place = {"shape": [1], "dtype": "float32", "strides": [1], "offset": 64, "bytes": 4}
    assert "68 bytes are said to lie in 64" in str(
        tree_fault({"structure": TENSOR, "tensors": [place], "bytes": 64}, 64)
    )


def test_a_value_outside_the_bound_is_described() -> None:
    row = {"error": 100.0, "outside": 2, "total": 8, "index": 5, "want": 1.0, "have": 1.5}
    fault = value_fault(["output 0"], [row], [BOUND]) or ""
    assert "2 of 8" in fault and "flat index 5" in fault and "25.0%" in fault
    assert value_fault(["output 0"], [row | {"outside": 0}], [BOUND]) is None
    tail = row | {"shape": [2, 4], "span": [[0, 1], [3, 3]], "zeros": 1, "nans": 0}
    assert "; all of them lie in [0 to 1, 3] of [2, 4]; 50% of them are 0" in (
        value_fault(["output 0"], [tail], [BOUND]) or ""
    )
    assert "lie in" not in (value_fault(["output 0"], [tail | {"span": [[0, 1], [0, 3]]}], [BOUND]) or "")


def test_the_judge_sees_where_values_are_off(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from ncu_server.worker import comparer
    from ncu_server.worker.checking import tolerance

    monkeypatch.setitem(comparer.CHUNK, "cpu", 7)
    want = torch.ones(4, 10)
    have = want.clone()
    have[1:3, 8:] = 0.0
    have[2, 9] = torch.nan
    micro = tolerance.Units(grain=0.0, levels=[[1e308, 1e-6]])
    found = comparer._compare(want, have.reshape(-1), micro, 64.0)
    assert found["span"] == [[1, 2], [8, 9]] and (found["outside"], found["zeros"], found["nans"]) == (4, 3, 1)
    assert comparer._compare(want, want.reshape(-1), micro, 64.0)["span"] is None
    scalar = comparer._compare(torch.tensor(1.0), torch.tensor([2.0]), micro, 64.0)
    assert scalar["outside"] == 1 and scalar["span"] == []
