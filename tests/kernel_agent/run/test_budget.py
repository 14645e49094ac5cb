"""What a run may cost: hard limits, the worst case before each call, and what is delivered when they are reached."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernel_agent import KernelAgent
from kernel_agent.errors import BudgetSpent, ProviderError, UsageError
from kernel_agent.llm import cassette
from kernel_agent.llm.prices import Price
from kernel_agent.providers import PROVIDERS
from kernel_agent.run.budget import Budget, Charge, Clock, Limits
from kernel_agent.run.events import Confirmed, Event, Stopped
from kernel_agent.run.journal import Journal, read
from kernel_agent.run.types import digest
from tests.support.endpoint_run import Mind, alone, run  # noqa: F401  alone: a fixture of every test
from tests.support.scripted_openai import Events, Refuse, Say, ScriptedOpenAI, Stall, Step
from tests.support.scripted_run import LETTERS, ROOT
from tests.support.scripted_run import MODEL as CODE


async def test_the_cost_of_each_call_is_kept_to_the_cent_by_stage(tmp_path: Path) -> None:
    async with ScriptedOpenAI(Mind()) as server:
        results = await run(tmp_path, server, prices="tiny=2/30", num_rounds=2)
        again = await run(tmp_path, server, prices="tiny=2/30", num_rounds=2)
    spent = results["spent"]
    assert (spent["calls"], spent["prompt_tokens"], spent["reply_tokens"]) == (7, 700, 70) and len(server.requests) == 7
    assert spent["dollars"] == pytest.approx(7 * (100 * 2 + 10 * 30) / 1e6)
    assert {stage: row["calls"] for stage, row in spent["models"].items()} == {"ideas": 3, "code": 4}
    assert again | {"devices": []} == results | {"devices": []}, "a resumed run pays nothing again"


async def test_what_breaks_off_is_charged_as_far_as_it_came(tmp_path: Path) -> None:
    half = json.dumps({"choices": [{"delta": {"content": "x" * 300}}]})
    ideas = Say('[{"title": "wide loads", "transformation": "load"}]')
    async with ScriptedOpenAI([ideas, Events((half,)), Refuse(401)]) as server:
        with pytest.raises(ProviderError, match="401"):
            await run(tmp_path, server, prices="tiny=0/10", branching_factor=1)
    with Journal.open(tmp_path / "run") as journal:
        _, charge = journal.charges()
    assert (charge.stage, charge.reply_tokens) == ("code", 100) and charge.prompt_tokens > 100
    assert charge.dollars == pytest.approx(100 * 10 / 1e6)


class Crew(Mind):
    """Some of its kernels are wrong, some replies useless, most kernels declare tunables, by hash; what is written for
    the first idea is wrong until another is asked."""

    first = f"try {digest(0).translate(LETTERS)} instead"

    def __call__(self, body: dict[str, Any]) -> Step:
        asked = body["messages"][1]["content"]
        if asked.rstrip().endswith("No code beyond single expressions."):
            return Say("It is line 3.")
        if re.search("^Propose", asked, re.MULTILINE):
            return super().__call__(body)
        number = int(digest(asked), 16)
        stubborn = self.first in asked and "you are the last one asked" not in asked
        order = "verdict: wrong" if stubborn or number % 3 == 0 else f"speed: {1 + number % 100 / 50}"
        tunables = "A = 1  # tune: 1, 2, 3\n" if number % 2 else ""
        return Say(
            "no"
            if number % 7 == 1 and not stubborn
            else f"```python\n# {order}\n{tunables}class ModelNew(Model):\n    n = {number}\n```"
        )


CREW = {"branching_factor": 5, "implementations_per_idea": 2, "num_rounds": 3, "flat_rounds": 0, "max_repairs": 2}
CREW |= {"helper_model": "anthropic:claude-haiku-4-5", "escalation_model": "gemini:gemini-3.5-flash"}
CREW |= {"anthropic_api_key": "sk-a", "gemini_api_key": "sk-g", "prices": "custom:tiny=2/30", "seeds": True}


@pytest.mark.long
async def test_models_of_several_providers_are_charged_to_the_cent_and_replayed_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ScriptedOpenAI(Crew()) as server, ScriptedOpenAI(Crew()) as others:
        for name in ("anthropic", "gemini"):
            monkeypatch.setitem(PROVIDERS, name, replace(PROVIDERS[name], base_url=others.url))
        results = await run(tmp_path, server, record=tmp_path / "tape.jsonl", **CREW)
    asked = Counter(body["model"] for body in (*server.requests, *others.requests))
    prices = {"tiny": Price(2, 30), "claude-haiku-4-5": Price(1, 5), "gemini-3.5-flash": Price(1.5, 9)}
    assert set(asked) == set(prices) and set(others.keys) == {"bearer sk-a", "bearer sk-g"}
    spent = sum(calls * prices[model].of(100, 10) for model, calls in asked.items())
    assert results["spent"]["dollars"] == pytest.approx(spent, abs=1e-9) and results["spent"]["calls"] == asked.total()
    first = read(tmp_path / "run")
    assert any(idea.second_parent for idea in first.ideas.values()) and any(
        trial.tuned for trial in first.trials.values()
    )
    assert first.unwritten and {"repair", "escalation"} <= set(results["spent"]["models"])
    bench = f"python {ROOT / 'tests' / 'support' / 'scripted_bench.py'} --log {tmp_path / 'other.log'}"
    for number, tape in enumerate(("tape.jsonl", "again0", "tape1.jsonl")):
        player = KernelAgent(mcp_server_path=bench, cassette=tmp_path / tape, record=tmp_path / f"tape{number}.jsonl")
        await player.generate_kernel(CODE, run_directory=tmp_path / f"again{number}")
        again = read(tmp_path / f"again{number}")
        assert (again.ideas, again.trials, again.evaluations) == (first.ideas, first.trials, first.evaluations)
        assert again.unwritten == first.unwritten
        calls = {(call.key, call.place, call.reply) for call in cassette.read(tmp_path / f"tape{number}.jsonl").calls}
        assert calls == {(call.key, call.place, call.reply) for call in cassette.read(tmp_path / "tape.jsonl").calls}


async def test_a_run_keeps_its_provider_and_asks_another_at_its_own_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(Mind):
        def __call__(self, body: dict[str, Any]) -> Step:
            return Refuse(401) if self.kernels else super().__call__(body)

    by_key = {"provider": "auto", "model_name": None, "max_concurrent_calls": 1}
    async with ScriptedOpenAI(Full()) as first, ScriptedOpenAI(Mind()) as second:
        with pytest.raises(ProviderError, match=r"openai \(.*\) refused with 401"):
            await run(tmp_path, first, openai_api_key="sk-one", **by_key)
        asked = len(first.requests)
        with pytest.raises(ProviderError, match="Provider openai needs a key: set OPENAI_API_KEY"):
            await KernelAgent().resume(tmp_path / "run")
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-two")
        seen: list[Event] = []
        agent = KernelAgent(provider="anthropic", base_url=second.url, observe=seen.append)
        _, results = await agent.resume(tmp_path / "run")
        assert results["status"] == "improved" and len(first.requests) == asked
        assert {body["model"] for body in second.requests} == {"claude-sonnet-5-5"}
        assert set(second.keys) == {"bearer sk-two"}


@pytest.mark.long
async def test_templates_that_go_on_with_a_model_s_run_take_no_credit_for_its_ideas(tmp_path: Path) -> None:
    class Full(Mind):
        def __call__(self, body: dict[str, Any]) -> Step:
            return Refuse(401) if self.kernels else super().__call__(body)

    async with ScriptedOpenAI(Full()) as server:
        with pytest.raises(ProviderError, match="401"):
            await run(tmp_path, server, max_concurrent_calls=1)
    _, results = await KernelAgent(provider="templates", num_rounds=2).resume(tmp_path / "run")
    (left,) = results["unwritten"]
    assert left["reason"] == "a model had this idea and templates write only their own" and results["rounds"] == 2
    assert left["idea"] not in [row["idea"] for row in results["ranking"]]


async def longest(tmp_path: Path) -> int:
    """The bytes of the longest prompt of a first round."""
    tmp_path.mkdir()
    async with ScriptedOpenAI(Mind()) as server:
        await run(tmp_path, server, num_rounds=1)
        return max(sum(len(turn["content"].encode()) for turn in body["messages"]) for body in server.requests)


@pytest.mark.parametrize("limit", ["dollars", "tokens"])
async def test_no_call_may_exceed_the_budget_and_the_best_so_far_is_delivered(tmp_path: Path, limit: str) -> None:
    given = {"prices": "tiny=0/1", "max_tokens": 1000, "budget_dollars": 0.00103}
    if limit == "tokens":
        given = {"budget_tokens": await longest(tmp_path / "first") + 200, "max_tokens": 10}
    events: list[Event] = []
    async with ScriptedOpenAI(Mind()) as server:
        results = await run(tmp_path, server, events, num_rounds=9, **given)
        made = len(server.requests)
        assert 2 <= made < 30
        assert all(body.get("max_tokens") == given["max_tokens"] for body in server.requests)
        stop = next(event for event in events if isinstance(event, Stopped))
        assert stop.spent and re.search(r"The budget is spent: .* raise --budget-" + limit, stop.reason)
        assert results["stopped"] == stop.reason
        assert results["status"] == "improved" and any(isinstance(event, Confirmed) for event in events)
        spent = results["spent"]
        assert spent["calls"] == made
        if limit == "dollars":
            assert spent["dollars"] <= 0.00103 < spent["dollars"] + 1000 / 1e6
        raised = {name: 10 * value for name, value in given.items() if name.startswith("budget")}
        further = await run(tmp_path, server, num_rounds=2, **(given | raised))
        assert further["spent"]["calls"] > made or made >= 6


async def test_dollars_without_a_price_are_refused_before_anything_is_asked(tmp_path: Path) -> None:
    async with ScriptedOpenAI(Mind()) as server:
        with pytest.raises(UsageError, match=r"The price of tiny is not known.*--prices tiny=1.25/10\.$"):
            await run(tmp_path, server, budget_dollars=1)
        with pytest.raises(UsageError, match=r"`prices` cannot be used: 'tiny' is not NAME=DOLLARS_IN/DOLLARS_OUT"):
            await run(tmp_path, server, budget_dollars=1, prices="tiny")
        assert server.requests == []


async def test_when_the_minutes_are_over_the_best_so_far_is_confirmed(tmp_path: Path) -> None:
    class Late(Mind):
        def __call__(self, body: dict[str, Any]) -> Step:
            return Stall() if self.kernels == 2 else super().__call__(body)

    events: list[Event] = []
    async with ScriptedOpenAI(Late()) as server:
        results = await run(tmp_path, server, events, num_rounds=9, budget_minutes=0.05)
    assert results["status"] == "improved" and results["spent"]["seconds"] >= 2.5
    assert any(isinstance(event, Stopped) and "minutes are over" in event.reason for event in events)


@pytest.mark.parametrize(
    ("used", "said"),
    [(61.0, "the 1 minutes are over; raise"), (45.0, "what is left of the 1 minutes is for the last judgement; raise")],
)
async def test_the_end_of_a_search_is_told_from_the_end_of_its_minutes(used: float, said: str) -> None:
    budget = Budget(Limits(minutes=1.0), clock=Clock(used))
    budget.reserve({"held_s": 10.0})
    with pytest.raises(BudgetSpent, match=said):
        await budget.within(asyncio.Event().wait())


async def test_calls_at_once_share_what_is_left_and_wait_for_one_another() -> None:
    budget = Budget(Limits(tokens=25))
    under_way, most = 0, 0

    async def call() -> bool:
        nonlocal under_way, most
        try:
            async with budget.call(0.0, 10) as charge:
                under_way += 1
                most = max(most, under_way)
                await asyncio.sleep(0)
                charge(Charge("code", "m", 4, 1, None, 0.0))
                under_way -= 1
        except BudgetSpent:
            return False
        return True

    made = await asyncio.gather(*(call() for _ in range(8)))
    assert most == 2 and budget.tokens <= 25 and sum(made) == 4


async def test_a_call_that_fails_gives_back_what_was_held_for_it() -> None:
    budget = Budget(Limits(tokens=10))
    with pytest.raises(OSError):
        async with budget.call(0.0, 10):
            raise OSError
    async with budget.call(0.0, 10):
        pass


def test_waiting_for_the_device_is_not_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    clock = Clock(100.0)

    def wait(seconds: float) -> float:
        now[0] += seconds
        return clock.seconds - 100

    assert wait(5) == 0, "nothing goes on"
    with clock.work() as waits:
        assert wait(1) == 1
        waits(True)
        assert wait(10) == 1
        with clock.work():
            assert wait(2) == 3, "something else goes on meanwhile"
        waits(True)
        assert wait(10) == 3
        waits(False)
        assert wait(1) == 4
        waits(True)
    assert wait(10) == 4
    with clock.work():
        assert wait(1) == 5
