"""Several models for a role: what came of a call, who is asked, that a resumed run asks the same, and the budget."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernel_agent.errors import ProviderError, UsageError
from kernel_agent.llm import call_site as places
from kernel_agent.llm.call_site import CallSite
from kernel_agent.llm.ensemble import Pull, pulled, reward, round_robin_index
from kernel_agent.llm.prices import Price
from kernel_agent.providers import PROVIDERS
from kernel_agent.run.journal import Journal
from kernel_agent.run.tree import EvaluationRecord, Ideas, Run
from kernel_agent.run.types import Idea, Trial, digest
from tests.support.endpoint_run import alone, run  # noqa: F401  alone: a fixture of every test
from tests.support.scripted_openai import Refuse, Say, ScriptedOpenAI, Step
from tests.support.scripted_run import DESCRIPTION, LETTERS, PROBLEM, evaluation_of, small_settings

IDEA = Idea("i", 1, "p", "ideas of round 3, no. 1", "")
"""A title that looks like a place."""


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (places.of_ideas(2), "ideas of round 2"),
        (places.of_code(IDEA, 1), "ideas of round 3, no. 1, round 1, attempt 1"),
        (places.of_code(IDEA, 0, "repair", 3), "ideas of round 3, no. 1, round 1, attempt 0, repair 3"),
        (places.of_code(IDEA, 0, "diagnosis", 2), "ideas of round 3, no. 1, round 1, attempt 0, diagnosis 2"),
        (places.of_code(IDEA, 2, "last try", None), "ideas of round 3, no. 1, round 1, attempt 2, last try"),
    ],
)
def test_a_place_is_read_back_as_data_and_in_the_words_of_before(place: CallSite, words: str) -> None:
    asked = place.numbered(4)
    for one, said in ((asked, f"{words}, no. 4"), (replace(asked, again=True), f"{words}, no. 4, again")):
        assert places.load(json.loads(json.dumps(one.row()))) == places.load(said) == one
        assert str(one) == said
    assert [places.load(none) for none in (words, "", None, {"poem": 1}, {})] == [None] * 5


def test_what_seeds_a_choice_is_what_seeded_it_before() -> None:
    place = replace(places.of_code(IDEA, 1, "repair", 2).numbered(4), again=True)
    assert repr(place) == f"CallSite(round=1, title={IDEA.title!r}, attempt=1, step=2, number=4)"


def grown() -> Run:
    """Round 1: `wide loads`, at first twice as fast as the original, and `a "tiled" loop`, wrong until its last try.
    Round 2: two steps from 2x to 3x."""
    run = Run(PROBLEM, small_settings(max_repairs=1), DESCRIPTION)
    wide = Idea("wide", 1, run.reference.id, "wide loads", "")
    tiled = Idea("tiled", 1, run.reference.id, 'A "tiled" loop', "")
    run.record(Ideas(1, (wide, tiled)))
    fast = Trial("wide", 0, 0, run.reference.id, "# speed: 2.0\n")
    wrong = Trial("tiled", 1, 0, run.reference.id, "# verdict: wrong\n")
    mended = Trial("tiled", 1, 1, wrong.id, "# verdict: wrong\n#\n")
    last = Trial("tiled", 1, 2, mended.id, "# speed: 1.5\n")
    swept = Trial("wide", 0, 3, fast.id, "# speed: 9.0\n", (("A", 2),))
    further = Idea("further", 2, fast.id, "further", "")
    for trial in (fast, wrong, mended, last, swept):
        run.record(trial)
    run.record(Ideas(2, (further,)))
    faster = Trial("further", 0, 0, fast.id, "# speed: 3.0\n")
    slower = Trial("further", 1, 0, fast.id, "# speed: 1.9\n")
    for trial in (faster, slower):
        run.record(trial)
    for trial in (fast, wrong, mended, last, swept, faster, slower):
        run.record(EvaluationRecord(trial.source_id, evaluation_of(trial.source, "eager")))
    return run


@pytest.mark.parametrize(
    ("place", "reply", "gain"),
    [
        (CallSite(1, "wide loads", 0, 0, 1), "", 2.0),
        (CallSite(1, 'A "tiled" loop', 1, 0, 1), "", 1.0),
        (CallSite(1, 'A "tiled" loop', 1, 1, 1), "", 1.0),
        (CallSite(1, 'A "tiled" loop', 1, None, 1), "", 1.5),
        (CallSite(2, "further", 0, 0, 1), "", 1.5),
        (CallSite(2, "further", 1, 0, 1), "", 1.0),
        (CallSite(1, None, 0, 0, 1, "ideas"), json.dumps([{"title": 'A "tiled"  loop'}]), 1.5),
        (CallSite(1, None, 0, 0, 1, "ideas"), json.dumps([{"title": "Wide loads"}]), 2.0),
        (CallSite(1, None, 0, 0, 2, "ideas"), json.dumps([{"title": "refused"}]), 1.0),
        (CallSite(1, "wide loads", 1, 0, 1), "", 1.0),
    ],
)
def test_the_reward_is_the_log_of_the_gain_over_the_parent_or_zero(place: CallSite, reply: str, gain: float) -> None:
    assert 2 ** reward(grown(), place, [reply]) == pytest.approx(gain)


def test_a_call_pays_in_dollars_or_without_prices_in_tokens_repeats_twice() -> None:
    def call(arm: str | None, place: str, role: str = "code") -> tuple[str, str, dict[str, Any]]:
        about = {"arm": arm, "role": role, "place": place, "prompt_tokens": 1000, "completion_tokens": 100}
        return "key", "reply", about

    calls = [
        call("a", "wide loads, round 1, attempt 0, no. 1"),
        call("a", "wide loads, round 1, attempt 0, no. 1, again"),
        call("b", 'A "tiled" loop, round 1, attempt 1, no. 1'),
        call("gone", "wide loads, round 1, attempt 0, no. 1"),
        call("b", "further, round 2, attempt 0, no. 1"),
        call("b", "wide loads, round 1, attempt 0, repair 1, no. 1", "repair"),
        call(None, "wide loads, round 1, attempt 0, no. 1"),
    ]
    found = list(pulled(grown(), calls, "code", 2, {"a": Price(1, 10), "b": Price(2, 20)}))
    assert found == [Pull("a", 1.0, pytest.approx(0.004)), Pull("b", 0.0, pytest.approx(0.004))]
    assert [pull.cost for pull in pulled(grown(), calls, "code", 2, {"a": Price(1, 10), "b": None})] == [2200, 1100]


def test_the_attempts_at_an_idea_take_turns_and_so_do_first_attempts() -> None:
    run = grown()
    turns = [
        [round_robin_index(run, CallSite(1, title, n, 0, 1), "") for n in (0, 1)]
        for title in ("wide loads", 'A "tiled" loop')
    ]
    assert turns == [[0, 1], [1, 2]] and round_robin_index(run, CallSite(4, None, 0, 0, 3), "") == 2
    assert {round_robin_index(run, CallSite(1, "wide loads", 0, 1, 1), f"{n}") % 2 for n in range(9)} == {0, 1}


class Pair:
    """Four ideas a round, by the words of the question; `good` writes kernels ever faster, `bad` wrong ones."""

    def __init__(self, refuse_after: int | None = None) -> None:
        self.left = refuse_after

    def __call__(self, body: dict[str, Any]) -> Step:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                return Refuse(401)
        asked = body["messages"][1]["content"]
        if wanted := re.search(r"^Propose (?:up to (\d+) ideas|one idea)", asked, re.MULTILINE):
            round = len(set(re.findall(r"try (\w+) instead", asked)))
            titles = [f"try {digest(round, n).translate(LETTERS)} instead" for n in range(int(wanted[1] or 1))]
            return Say(json.dumps([{"title": title, "transformation": title} for title in titles]))
        speeds = [float(speed) for speed in re.findall(r"# speed: ([\d.]+)", asked)]
        own = int(digest(asked, body["model"]), 16) % 1000 / 1e4
        order = "verdict: wrong" if body["model"] == "bad" else f"speed: {1.5 * max(speeds, default=1.0) + own:.4f}"
        return Say(f"```python\n# {order}\nclass ModelNew(Model):\n    n = {own}\n```")


PAIR = {"code_model": "bad, good", "prices": "tiny=1/1, bad=1/10, good=1/10", "branching_factor": 8, "flat_rounds": 0}
PAIR |= {"max_repairs": 0, "num_rounds": 3, "stop_share": 2}


def asked_by_place(directory: Path) -> dict[str, str | None]:
    with Journal.open(directory) as journal:
        return {str(places.load(about["place"])): about["arm"] for _, _, about in journal.calls()}


async def test_each_model_is_tried_in_round_one_and_then_the_one_that_gains(tmp_path: Path) -> None:
    async with ScriptedOpenAI(Pair()) as server:
        results = await run(tmp_path, server, **PAIR)
    asked = asked_by_place(tmp_path / "run")
    rounds = [Counter(arm for place, arm in asked.items() if f"instead, round {n}," in place) for n in (1, 2, 3)]
    assert rounds[0] == {"bad": 4, "good": 4}
    assert rounds[1]["good"] > rounds[1]["bad"] and rounds[2]["good"] > rounds[2]["bad"]
    spent = results["spent"]["models"]
    own = {name: row["calls"] for name, row in spent["code"]["by_model"].items()}
    assert own == rounds[0] + rounds[1] + rounds[2] and "by_model" not in spent["ideas"]
    prices = {"tiny": Price(1, 1), "bad": Price(1, 10), "good": Price(1, 10)}
    dollars = sum(prices[body["model"]].of(100, 10) for body in server.requests)
    assert results["spent"]["dollars"] == pytest.approx(dollars, abs=1e-9)


@pytest.mark.parametrize("after", [4, 15])
async def test_a_resumed_run_asks_the_same_models_and_pays_for_nothing_twice(tmp_path: Path, after: int) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "broken").mkdir()
    async with ScriptedOpenAI(Pair()) as server, ScriptedOpenAI(Pair(after)) as breaking:
        whole = await run(tmp_path / "whole", server, **PAIR)
        with pytest.raises(ProviderError, match="401"):
            await run(tmp_path / "broken", breaking, **PAIR)
        made = len(server.requests)
        broken = await run(tmp_path / "broken", server, **PAIR, base_url=server.url)
        assert len(server.requests) - made == made - after
    assert asked_by_place(tmp_path / "broken" / "run") == asked_by_place(tmp_path / "whole" / "run")
    assert broken["spent"]["dollars"] == pytest.approx(whole["spent"]["dollars"], abs=1e-9)
    assert [row["trial"] for row in broken["ranking"]] == [row["trial"] for row in whole["ranking"]]


async def test_a_call_counts_against_the_budget_at_the_chosen_model_s_price(tmp_path: Path) -> None:
    given = PAIR | {"prices": "tiny=0/0, good=0/1, bad=0/100", "code_model": "good, bad", "max_concurrent_calls": 1}
    async with ScriptedOpenAI(Pair()) as server:
        results = await run(tmp_path, server, **given, max_tokens=1000, budget_dollars=0.05)
    assert re.search(r"the next call may take \$0\.1000", results["stopped"])
    assert {body["model"] for body in server.requests} == {"tiny", "good"} and results["status"] == "improved"


async def test_a_budget_in_dollars_needs_the_price_of_every_model(tmp_path: Path) -> None:
    async with ScriptedOpenAI(Pair()) as server:
        with pytest.raises(UsageError, match=r"The price of good is not known.*--prices good=1.25/10\.$"):
            await run(tmp_path, server, **PAIR | {"prices": "tiny=1/1, bad=1/10"}, budget_dollars=1)
        assert server.requests == []


async def test_an_ensemble_may_serve_every_role_and_span_providers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = PAIR | {"code_model": None, "model_name": "good,openai:bad", "num_rounds": 2, "max_repairs": 1}
    async with ScriptedOpenAI(Pair()) as server, ScriptedOpenAI(Pair()) as other:
        monkeypatch.setitem(PROVIDERS, "openai", replace(PROVIDERS["openai"], base_url=other.url))
        await run(tmp_path, server, **given, helper_model="good, bad", openai_api_key="k")
    assert {body["model"] for body in other.requests} == {"bad"} and set(other.keys) == {"bearer k"}
    asked = asked_by_place(tmp_path / "run")
    assert all(places.load(place) for place in asked)
    kinds = {kind: {arm for place, arm in asked.items() if kind in place} for kind in ("ideas", "repair", "diagnosis")}
    assert kinds["ideas"] == kinds["repair"] == {"good", "openai:bad"} and kinds["diagnosis"] == {"good", "bad"}
