"""A run's page as a file: whole, small, and deaf to whatever stands in a run."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

from kernel_agent.page.facts import facts
from kernel_agent.page.render import comparison, live, packed, page
from kernel_agent.page.seen import see
from kernel_agent.page.texts import texts
from tests.support.drawn_pages import Elements, unpacked
from tests.support.hostile import HOSTILE, hostile_run
from tests.support.page_runs import write


def drawn(directory: Path) -> str:
    seen = see(directory)
    return page(facts(seen), texts(seen.run, lambda names: ()))


def test_a_page_holds_its_facts_and_texts_whole(recorded: Path) -> None:
    text, seen = drawn(recorded), see(recorded)
    assert unpacked(text, "facts") == json.loads(json.dumps(facts(seen)))
    assert unpacked(text, "texts")["sources"].keys() == {trial.source_id for trial in seen.run.trials.values()}


def test_a_page_loads_nothing_and_runs_its_own_scripts_alone(recorded: Path) -> None:
    found = Elements(drawn(recorded))
    loaded = [value for _, attributes, _ in found.found for name in ("src", "href") if (value := attributes.get(name))]
    assert loaded == ["data:,", "#main"]
    policy = next(a["content"] for a, _ in found.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and "default-src 'none'" in policy
    scripts = [text for attributes, text in found.all("script") if "type" not in attributes]
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    assert re.findall(r"sha256-([^']+)", policy) == hashes and len(hashes) == 2


def test_nothing_of_a_hostile_run_becomes_an_element(tmp_path: Path) -> None:
    seen = hostile_run(tmp_path / "run")
    plain = [tag for tag, _, _ in Elements(live()).found]
    for text in (page(facts(seen), texts(seen.run, lambda names: ())), comparison([facts(seen), facts(seen)])):
        assert [tag for tag, _, _ in Elements(text).found] == plain
        assert HOSTILE not in text


def test_two_thousand_trials_are_a_page_under_five_megabytes(tmp_path: Path) -> None:
    text = drawn(write(tmp_path / "run", 2000))
    assert len(unpacked(text, "facts")["trials"]) == 2001
    assert len(text.encode()) < 5_000_000


def test_a_page_says_its_result_without_script_too(recorded: Path) -> None:
    text = drawn(recorded)
    speed = facts(see(recorded))["headline"]["speedup"]
    assert f"{speed:.2f}x" in next(text for _, text in Elements(text).all("p") if "In words" in text)


def test_a_comparison_has_the_curve_of_each_run_and_no_texts(recorded: Path) -> None:
    found = facts(see(recorded))
    text = comparison([found, found])
    rows = unpacked(text, "facts")
    assert [len(row["trials"]) for row in rows] == [len(found["trials"])] * 2
    assert all("title" not in trial for row in rows for trial in row["trials"])


def test_the_same_value_is_packed_alike() -> None:
    assert packed({"a": "</script>"}) == packed({"a": "</script>"})
    assert "<" not in packed({"a": "</script>"})


def test_shipped_assets_carry_the_licence_of_what_is_not_ours() -> None:
    from importlib.resources import files

    folder = files("kernel_agent.page").joinpath("assets", "uplot")
    assert (
        "MIT License" in folder.joinpath("LICENSE").read_text()
        or "Permission is hereby granted" in folder.joinpath("LICENSE").read_text()
    )
