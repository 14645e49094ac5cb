"""The bytes that a prompt gives an operator are those that it has to move."""

from typing import Any

import pytest

from kernel_agent.prompts.brief import operators

VALUES, INDICES = {"shape": [64], "dtype": "float32"}, {"shape": [64], "dtype": "int64"}
X = {"name": "x", "shape": [64, 100], "dtype": "float32"}


def node(name: str, op: str, args: list[Any], *outputs: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "op": op, "args": args, "kwargs": {}, "outputs": list(outputs)}


def picked(*returned: str) -> list[str]:
    """The rows of a maximum's two outputs, of which the module returns some."""
    nodes = [
        node("both", "aten.max.dim", [{"node": "x"}, 1], VALUES, INDICES),
        node("largest", "_operator.getitem", [{"node": "both"}, 0], VALUES),
        node("where", "_operator.getitem", [{"node": "both"}, 1], INDICES),
        node("twice", "aten.mul.Tensor", [{"node": "largest"}, 2], VALUES),
    ]
    return operators({"inputs": [X], "parameters": [], "nodes": nodes, "outputs": list(returned)}).splitlines()


def bytes_of(row: str) -> str:
    return row.rpartition("; ")[2]


def test_picking_one_of_several_outputs_moves_nothing() -> None:
    _, _, largest, where, twice, _ = picked("twice", "where")
    assert bytes_of(largest) == bytes_of(where) == "0 B"
    assert bytes_of(twice) == "512 B", "what was picked is read, and as much is written"


@pytest.mark.parametrize(
    ("returned", "moved"),
    [(("twice",), "25.9 kB"), (("twice", "where"), "26.4 kB"), (("where", "largest"), "26.4 kB")],
)
def test_an_output_that_nobody_reads_is_not_counted(returned: tuple[str, ...], moved: str) -> None:
    assert bytes_of(picked(*returned)[1]) == moved


def test_outputs_that_are_not_picked_one_by_one_are_counted() -> None:
    only = [node("y", "aten.relu.default", [{"node": "x"}], {**X, "name": "y"})]
    rows = operators({"inputs": [X], "parameters": [], "nodes": only, "outputs": ["y"]}).splitlines()
    assert bytes_of(rows[1]) == "51.2 kB"
