"""A suite's table of made-up rows: the sums against figures worked out by hand, and one page as it looks."""

import csv
import io
import json
import math

import pytest

from kernel_agent.errors import UsageError
from kernel_agent.suite import table
from kernel_agent.suite.sums import by_level, sums
from kernel_agent.suite.types import Row
from tests.support.suite_rows import kernel, original

ROWS = (
    kernel("level1/19_ReLU", 2.5, 1.25, held=True, granted_minutes=4.0),
    kernel("level1/26_GELU", 1.04, 0.9, held=False, why_not_held="inconclusive: 1.01x", tokens=1200, dollars=0.25),
    original("level1/42_Max_Pooling_2D"),
    Row("level2/1_Conv", "not_covered", "No template covers aten.convolution.", dollars=0.0),
    Row("level2/2_Odd", "failed", "get_inputs | raised", dollars=0.0, notes=("degenerate",)),
)

PAGE = """\
# a suite

|  | problems | correct | covered | failed | improved | no improvement | not covered | held | judged | cost | minutes |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
| all | 5 | 2 (40%) | 3 (60%) | 1 | 2 | 1 | 1 | 1 of 2 | 32 | $0.25 | 7.0 |
| level1 | 3 | 2 (67%) | 3 (100%) | 0 | 2 | 1 | 0 | 1 of 2 | 32 | $0.25 | 7.0 |
| level2 | 2 | 0 (0%) | 0 (0%) | 1 | 0 | 0 | 1 |  | 0 | 0 | 0.0 |
"""


def test_a_page_has_the_counts_the_speeds_the_problems_and_the_reasons() -> None:
    page = table.markdown(table.table("a suite", ROWS))
    assert page.startswith(PAGE)
    rest = page.removeprefix(PAGE).split("\n\n")
    assert rest[0].strip().splitlines()[:3] == [
        "|  | fast_0.8 | fast_1 | fast_1.05 | fast_1.5 | fast_2 | mean over all | mean over correct | measured |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        "| kernels over eager | 0.40 | 0.40 | 0.20 | 0.20 | 0.20 | 1.21x | 1.61x | 5 of 5 |",
    ]
    head, _, *lines = rest[1].splitlines()
    assert head == (
        "| problem | status | kernel by | kernel ms | eager ms | compile ms | mode | limit ms | over eager "
        "| over compile | of the limit | judged | cost | minutes | held |"
    )
    assert lines[0] == (
        "| level1/19_ReLU | improved | custom | 0.4 | 1 | 0.5 | compile | 0.2 | 2.50x [2.48, 2.52] "
        "| 1.25x [1.24, 1.26] | 50% [50%, 50%] | 12 | 0 | 2.5 of 4.0 | yes |"
    )
    assert "- level1/26_GELU did not hold: inconclusive: 1.01x" in rest[2]
    assert "- level2/2_Odd: get_inputs \\| raised" in rest[2] and "- level2/2_Odd: degenerate" in rest[2]


def test_fast_p_is_the_share_of_all_problems_with_a_right_and_faster_kernel() -> None:
    found = sums([kernel("a", 2.0), kernel("b", 1.05), kernel("c", 0.9), original("d"), Row("e", "failed")])
    assert found.eager.fast == {"0.8": 0.6, "1": 0.4, "1.05": 0.2, "1.5": 0.2, "2": 0.0}
    assert (found.correct, found.covered) == (3, 4)


def test_an_original_counts_as_one_over_eager_and_as_it_is_over_compile() -> None:
    found = sums([kernel("a", 4.0, 2.0), original("b", compile_us=500.0)])
    assert found.eager.over_all == pytest.approx(2.0) and found.eager.over_correct == pytest.approx(4.0)
    assert found.versus_compile.over_all == pytest.approx(math.sqrt(2.0 * 0.5))
    assert found.versus_compile.over_correct == pytest.approx(2.0)


def test_torch_compile_is_held_to_the_same_figures() -> None:
    found = sums([kernel("a", 4.0, 2.0), original("b", compile_us=500.0), Row("c", "failed")])
    assert found.compile.fast["1.5"] == pytest.approx(2 / 3) and found.compile.over_correct == pytest.approx(2.0)
    assert found.compile.measured == 2


def test_a_kernel_without_a_time_of_compile_is_in_no_mean_over_it() -> None:
    found = sums([kernel("a", 2.0), kernel("b", 3.0, 1.5)])
    assert found.versus_compile.measured == 1 and found.versus_compile.fast["1"] == 0.5
    assert found.versus_compile.over_all == pytest.approx(1.5)


def test_an_unknown_price_makes_the_sum_unknown_and_tokens_stand_for_it() -> None:
    grid = table.counts(table.table("a", [kernel("a", 2.0, tokens=1000, dollars=None), kernel("b", 2.0)]))
    assert dict(zip(grid.head, grid.lines[0], strict=True))["cost"] == "1,000 tokens"


def test_no_rows_make_a_table_of_nothing() -> None:
    found = table.table("a", [])
    assert found.total.eager.over_all is None and found.total.eager.fast["1"] == 0.0
    assert "| all | 0 | 0 | 0 |" in table.markdown(found)


def test_levels_have_sums_only_where_there_are_several() -> None:
    assert list(by_level(ROWS)) == ["level1", "level2"] and by_level(ROWS)["level2"].problems == 2
    assert by_level([kernel("19_ReLU", 2.0), kernel("20_X", 2.0)]) == {}
    assert by_level(ROWS[:3]) == {}


def test_json_gives_the_rows_back() -> None:
    found = table.table("a suite", ROWS)
    written = table.as_json(found)
    assert table.rows_in(written, "x") == ROWS
    assert json.loads(written)["total"]["eager"]["fast"]["1.05"] == 0.2


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rows": [{"problem": 1}]}', "{" * 100_000])
def test_what_is_no_table_is_said_in_one_sentence(text: str) -> None:
    with pytest.raises(UsageError, match=r"kept\.json is no table of a suite"):
        table.rows_in(text, "kept.json")


def test_csv_has_every_field_and_three_columns_for_an_interval() -> None:
    first, *others = csv.DictReader(io.StringIO(table.comma_separated(table.table("a", ROWS))))
    assert (first["problem"], first["speedup_low"], first["speedup_median"]) == ("level1/19_ReLU", "2.475", "2.5")
    assert others[3]["notes"] == "degenerate" and others[3]["speedup_low"] == ""


def test_two_devices_are_named_and_not_compared() -> None:
    said = list(table.remarks(table.table("a", [kernel("a", 2.0), kernel("b", 2.0, device="another card")])))
    assert "Measured on a card and another card." in said and "Times of different devices are not compared." in said
