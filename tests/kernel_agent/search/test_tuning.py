"""Declared tunables: what counts as a declaration, and the way a sweep takes through their values."""

from __future__ import annotations

from itertools import product

import pytest
from pydantic import TypeAdapter

from kernel_agent.run.rows import text_of
from kernel_agent.run.types import Trial
from kernel_agent.search.tuning import Value, Values, following, rungs, tunables, with_values
from tests.support.edits import edit

SOURCE = '''import torch

BLOCK = 256  # tune: 128, 256, 512
KIND = "row"  #tune: "row", "column"
SCALE = 1.5  # tune: 0.5
ÜBER = 2 # tune: 1, 2, 3\t
HIDDEN = r"""
TILE = 8  # tune: 4, 8
"""
NAMES = ["a"]  # tune: 1, 2
COUNT = 4  # tune: BLOCK, 8
LONE = 3  # tune:
A = B = 1  # tune: 1, 2


class ModelNew:
    INNER = 1  # tune: 1, 2
'''


def test_only_plain_values_at_module_level_are_declarations() -> None:
    found = {tunable.name: (tunable.value, tunable.choices) for tunable in tunables(SOURCE)}
    assert found == {
        "BLOCK": (256, (256, 128, 512)),
        "KIND": ("row", ("row", "column")),
        "SCALE": (1.5, (1.5, 0.5)),
        "ÜBER": (2, (2, 1, 3)),
    }
    assert tunables("def f(:") == () == tunables("x = 1\0")


DIGITS = "f" * 20_000
ODD = [
    f"A = 1  # tune: 2, 0x{DIGITS}",
    f"A = 0x{DIGITS}  # tune: 1",
    "A = 1  # tune: {[1]}",
    "A = {[1]}  # tune: 1",
    "A = 1  # tune: {[1]: 2}, 3",
    "A = 1  # tune: 1e400, -1e400, 2",
    "A = 1  # tune: '\\ud800', 'b'",
    "A = '\\ud800'  # tune: 'a'",
    "A = 'a'  # tune: '" + "b" * 10_000 + "'",
    "# x\rA = 1  # tune: 1, 2\r\nB = 'a'  # tune: 'ü'\rpass\n",
    "x = 3\x0c\nA = 1  # tune: 1, 2\u2028\x85",
    "A = 1  # tune: 5e-324, True, -0.0, 10**9, 'a' 'b', None, 1j, b'a', (1,), 10",
]


@pytest.mark.parametrize("source", ODD, ids=range(len(ODD)))
def test_whatever_is_declared_is_written_to_source_and_journal_and_read_back(source: str) -> None:
    declared = tunables(source)
    for values in product(*(tunable.choices for tunable in declared)):
        written = with_values(source, declared, values)
        assert tuple(tunable.value for tunable in tunables(written)) == values
        pairs = tuple((tunable.name, value) for tunable, value in zip(declared, values, strict=True))
        trial = Trial(None, 0, 0, None, written, pairs)
        assert TypeAdapter(Trial).validate_json(text_of(trial)) == trial
    if "\r" in source:
        assert with_values(source, declared, (2, "ü")) == edit(edit(source, "A = 1", "A = 2"), "'a'", "'ü'")


def test_values_are_written_where_they_are_declared_and_nowhere_else() -> None:
    declared = tunables(SOURCE)
    own = tuple(tunable.value for tunable in declared)
    assert with_values(SOURCE, declared, own) == edit(SOURCE, 'KIND = "row"', "KIND = 'row'")
    other = with_values(SOURCE, declared, (128, "column", 0.5, 3))
    assert [tunable.value for tunable in tunables(other)] == [128, "column", 0.5, 3]
    changed = [pair for pair in zip(SOURCE.split("\n"), other.split("\n"), strict=True) if pair[0] != pair[1]]
    assert [new for _, new in changed] == [
        "BLOCK = 128  # tune: 128, 256, 512",
        'KIND = \'column\'  #tune: "row", "column"',
        "SCALE = 0.5  # tune: 0.5",
        "ÜBER = 3 # tune: 1, 2, 3\t",
    ]


def declared(*sizes: int) -> str:
    return "".join(f"T{i} = 0  # tune: {', '.join(map(str, range(size)))}\n" for i, size in enumerate(sizes))


def swept(source: str, speed: dict[Values, float | None], limit: int) -> tuple[dict[Values, float | None], list[int]]:
    known = tunables(source)
    own = tuple(tunable.value for tunable in known)
    tried, sizes = {own: speed[own]}, []
    while rung := following(known, tried, limit):
        assert not set(rung) & set(tried) and len(set(rung)) == len(rung)
        tried |= {values: speed[values] for values in rung}
        sizes.append(len(rung))
    return tried, sizes


@pytest.mark.parametrize("limit", [0, 1, 2, 5, 8, 16])
def test_a_sweep_takes_no_more_than_its_limit_in_rungs_of_half_the_size(limit: int) -> None:
    assert sum(rungs(limit)) == limit
    every: dict[Values, float | None] = {values: 1.0 + sum(map(int, values)) for values in product(range(4), repeat=3)}
    tried, sizes = swept(declared(4, 4, 4), every, limit)
    assert len(tried) - 1 == limit == sum(sizes)
    assert sizes == list(rungs(limit))


def test_few_combinations_are_all_tried_at_once() -> None:
    every: dict[Values, float | None] = dict.fromkeys(product(range(3), range(2)), 1.0)
    tried, sizes = swept(declared(3, 2), every, 8)
    assert set(tried) == set(every) and sizes == [5]


def test_a_sweep_comes_near_the_best_of_many_combinations() -> None:
    best = (3, 1, 2)
    every: dict[Values, float | None] = {
        values: 2.0 - 0.2 * sum(a != b for a, b in zip(values, best, strict=True))
        for values in product(range(4), repeat=3)
    }
    every |= {values: None for values in every if values[0] == 2}
    tried, _ = swept(declared(4, 4, 4), every, 16)
    assert max(speed or 0.0 for speed in tried.values()) > 1.75


def test_nothing_is_swept_where_the_kernel_or_all_its_neighbours_fail() -> None:
    known = tunables(declared(3, 3, 3))
    assert following(known, {(0, 0, 0): None}, 8) == ()
    every: dict[Values, float | None] = dict.fromkeys(product(range(3), repeat=3))
    every[0, 0, 0] = 1.0
    tried, _ = swept(declared(3, 3, 3), every, 8)
    assert len(tried) <= 9


def test_values_of_several_kinds_are_swept_together() -> None:
    source = 'A = True  # tune: True, False\nB = "x"  # tune: "x", "y", "z"\nC = 1  # tune: 1, 2.5, 4, 8\n'
    choices: list[tuple[Value, ...]] = [(True, False), ("x", "y", "z"), (1, 2.5, 4, 8)]
    every: dict[Values, float | None] = dict.fromkeys(product(*choices), 1.0)
    tried, _ = swept(source, every, 7)
    assert len(tried) == 8
