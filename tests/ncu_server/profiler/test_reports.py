"""The store of reports, and what the tools tell of it."""

import json
import os
from pathlib import Path

import pytest

from ncu_server.errors import Code, Refusal
from ncu_server.profiler import compare, render
from ncu_server.profiler.digest import digest
from ncu_server.profiler.facts import KernelFacts
from ncu_server.profiler.render import counters
from ncu_server.profiler.reports import About, Reports
from tests.support.nsight import launch


def kept(store: Reports, tmp_path: Path, text: str, *kernels: KernelFacts) -> str:
    raw = tmp_path / "r.ncu-rep"
    raw.write_text(text)
    return store.add(raw, list(kernels) or [launch("healthy_sm_90")], About(), "said").identity


def test_an_id_outlives_the_server_and_stands_for_the_same_bytes(tmp_path: Path) -> None:
    first = kept(Reports(tmp_path / "s"), tmp_path, "x")
    again = Reports(tmp_path / "s")
    assert kept(again, tmp_path, "x") == first != kept(again, tmp_path, "y")
    entry = again.get(first)
    assert entry.raw == b"x" and entry.log == "said" and entry.kernels[0].metrics


def test_the_least_used_are_dropped_over_the_cap_and_never_the_newest(tmp_path: Path) -> None:
    size = len(launch("healthy_sm_90").model_dump_json()) + 1000
    store = Reports(tmp_path / "s", cap_bytes=2 * size)
    ids = [kept(store, tmp_path, "a"), kept(store, tmp_path, "b")]
    for age, identity in zip((50, 10), ids, strict=True):
        os.utime(tmp_path / "s" / identity, (age, age))
    store.get(ids[0])  # used again
    newest = kept(store, tmp_path, "c")
    with pytest.raises(Refusal) as gone:
        store.get(ids[1])
    assert gone.value.code == Code.UNKNOWN_REPORT
    assert store.get(ids[0]) and store.get(newest)
    tiny = Reports(tmp_path / "t", cap_bytes=1)
    assert tiny.get(kept(tiny, tmp_path, "d"))


@pytest.mark.parametrize("identity", ["", "..", "../../etc", "0123456789ab", "zzzzzzzzzzzz"])
def test_what_is_no_id_of_a_report_is_refused(tmp_path: Path, identity: str) -> None:
    with pytest.raises(Refusal) as refusal:
        Reports(tmp_path / "s").get(identity)
    assert refusal.value.code == Code.UNKNOWN_REPORT


def test_the_longest_launch_is_told_in_full_and_the_others_in_a_line(tmp_path: Path) -> None:
    store = Reports(tmp_path / "s")
    short, long = launch("small_grid_sm_100"), launch("spills_sm_86")
    entry = store.get(kept(store, tmp_path, "x", short, long))
    report = render.report(entry)
    assert report.digest and report.digest.name == "spills_sm_86"
    assert [(row.index, row.name) for row in report.kernels] == [(1, "spills_sm_86"), (0, "small_grid_sm_100")]
    other = render.report(entry, 0).digest
    assert other and other.name == "small_grid_sm_100"
    with pytest.raises(Refusal):
        render.report(entry, 2)


def test_counters_are_found_by_part_and_by_pattern_a_page_at_a_time(tmp_path: Path) -> None:
    store = Reports(tmp_path / "s")
    entry = store.get(kept(store, tmp_path, "x"))
    names: list[str] = []
    cursor: int | None = 0
    while cursor is not None:
        page = counters(entry, None, "l1tex", 3, cursor)
        names += [row.name for row in page.metrics]
        cursor = page.cursor
    assert len(names) == page.total == len(set(names)) and all("l1tex" in name for name in names)
    assert [row.name for row in counters(entry, 0, "GPU__time*.sum", 40, 0).metrics] == ["gpu__time_duration.sum"]
    assert counters(entry, 0, "no such", 40, 0).total == 0


def test_a_comparison_says_in_words_what_was_cured_and_what_it_cost() -> None:
    before = launch("uncoalesced_sm_90")
    after = launch("healthy_sm_90", duration=100_000.0, global_sectors=1e6, global_ideal=1e6)
    found = compare.compare(before, after, ("a", "b"))
    assert "2.85 times as fast" in found.says[0]
    assert found.says[1].startswith("bound by memory before, now near the limit")
    assert any(words.startswith("cured: ") and "uncoalesced" in words for words in found.says)
    assert any(change.what == "sectors of global accesses" for change in found.changes)
    back = compare.compare(after, before, ("b", "a"))
    assert "slower" in back.says[0] and any(words.startswith("new trouble: ") for words in back.says)


def test_launches_on_different_devices_do_not_compare_and_equal_ones_are_equal() -> None:
    other = compare.compare(launch("healthy_sm_90"), launch("spills_sm_86"), ("a", "b"))
    assert not other.comparable and "different devices" in other.notes[0]
    same = compare.compare(launch("spills_sm_86"), launch("spills_sm_86"), ("a", "a"))
    assert same.comparable and not same.changes and "as long as before" in same.says[0]


def test_facts_survive_the_store_to_the_digit(tmp_path: Path) -> None:
    store = Reports(tmp_path / "s")
    entry = store.get(kept(store, tmp_path, "x", launch("tail_sm_120")))
    assert json.loads(digest(entry.kernels[0]).model_dump_json()) == json.loads(
        digest(launch("tail_sm_120")).model_dump_json()
    )
