"""What a model's faults cost a run: refusals lose nothing that is paid for, useless replies cost one idea alone."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from kernel_agent.cli.report import account, line
from kernel_agent.errors import ProviderError, Unavailable
from kernel_agent.run.events import Event, NothingWritten, Notice, Stopped
from kernel_agent.run.journal import Journal
from kernel_agent.run.types import digest
from tests.support.endpoint_run import Mind, alone, run  # noqa: F401  alone: a fixture of every test
from tests.support.scripted_openai import Later, Refuse, Say, ScriptedOpenAI, Step
from tests.support.scripted_run import LETTERS


def is_code(body: dict[str, Any]) -> bool:
    return "Propose" not in body["messages"][1]["content"]


def module(order: str) -> Say:
    return Say(f"```python\n# {order}\nclass ModelNew(Model):\n    pass\n```")


class Together(Mind):
    """Its first three questions for code are open at once; the fault comes before the other two replies."""

    def __init__(self, fault: Say | Refuse) -> None:
        super().__init__()
        self.fault, self.open = fault, 0
        self.three, self.over = asyncio.Event(), asyncio.Event()

    def __call__(self, body: dict[str, Any]) -> Step:
        if not is_code(body):
            return super().__call__(body)
        self.open += 1
        if self.open == 3:
            self.three.set()
        if self.open == 1:
            return Later(self.fault, self.three)
        return Later(module(f"speed: {1 + self.open}"), self.over)

    def watch(self, event: Event) -> None:
        if isinstance(event, Notice) and "Model calls under way" in event.message:
            self.over.set()


GIVEN = {"branching_factor": 6, "num_rounds": 1, "max_concurrent_calls": 3, "prices": "tiny=2/30"}


@pytest.mark.parametrize("status", [401, 404])
async def test_replies_under_way_at_a_refusal_are_kept_and_not_paid_again_on_resume(
    tmp_path: Path, status: int
) -> None:
    mind = Together(Refuse(status))
    async with ScriptedOpenAI(mind) as server:
        with pytest.raises(ProviderError, match=str(status)):
            await run(tmp_path, server, mind.watch, **GIVEN)
        answered = [body["messages"] for body in server.requests if is_code(body)]
    assert len(answered) == 3, "no further call went out"
    with Journal.open(tmp_path / "run") as journal:
        assert len(journal.calls()) == len(journal.charges()) == 3
    async with ScriptedOpenAI(Mind()) as server:
        results = await run(tmp_path, server, **GIVEN)
        again = [body["messages"] for body in server.requests]
    assert len(again) == 4 and not [asked for asked in again if asked in answered[1:]]
    assert results["spent"]["calls"] == 7 and results["status"] == "improved"


async def test_replies_under_way_when_the_judge_fails_are_kept_too(tmp_path: Path) -> None:
    mind = Together(module("refuse: NO_DEVICE"))
    async with ScriptedOpenAI(mind) as server:
        with pytest.raises(Unavailable):
            await run(tmp_path, server, mind.watch, **GIVEN)
        asked = len(server.requests)
    with Journal.open(tmp_path / "run") as journal:
        assert len(journal.calls()) == len(journal.charges()) == asked >= 4


class Useless(Mind):
    """Talks instead of answering wherever `useless` says so; what the others say is wrong where `wrong` says so."""

    def __init__(self, useless: Callable[[str], bool], wrong: Callable[[str], bool] = lambda _: False) -> None:
        super().__init__()
        self.useless, self.wrong = useless, wrong

    def __call__(self, body: dict[str, Any]) -> Step:
        asked = body["messages"][1]["content"]
        if self.useless(asked):
            return Say("I would rather talk about it.")
        return module("verdict: wrong") if is_code(body) and self.wrong(asked) else super().__call__(body)


def untimed(results: dict[str, Any]) -> dict[str, Any]:
    """What a run found, without how long its devices were busy: a resumed one opens a server too."""
    return results | {"devices": []}


def first_idea(asked: str) -> bool:
    return bool(re.search(r"Carry out this idea[^\n]*\n(?:[^\n]*\n){0,4}?<<<data [^\n]*\ntry 0", asked))


class Numbered(Useless):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        titles = ["try 0: wide vector loads", "try 1: tiles through shared memory"]
        self.words = iter(title.removeprefix("try ") for title in titles)


async def test_a_reply_without_code_costs_its_own_implementation_and_nothing_else(tmp_path: Path) -> None:
    events: list[Event] = []
    async with ScriptedOpenAI(Numbered(first_idea)) as server:
        results = await run(tmp_path, server, events, num_rounds=1)
        asked = len(server.requests)
        assert asked == 4, "the ideas, the useless reply and its complaint, the other code"
        again = await run(tmp_path, server, num_rounds=1)
        assert len(server.requests) == asked and untimed(again) == untimed(results), "a resumed run does not ask again"
    assert results["status"] == "improved" and results["trials"] == 1 and results["stopped"] is None
    (failure,) = results["unwritten"]
    assert (
        failure["idea"].startswith("try 0") and "tiny answered twice in a form that cannot be used" in failure["reason"]
    )
    assert "no ```python block that defines class ModelNew" in failure["reason"]
    (told,) = [event for event in events if isinstance(event, NothingWritten)]
    assert (line(told) or "").startswith("r1 no code  try 0")
    with Journal.open(tmp_path / "run") as journal:
        shown = [str(row) for row in account(journal.load(), tmp_path / "run", None)]
    assert any("1 trials, 0 did not pass, 1 times no code came" in row for row in shown)


async def test_later_briefs_say_that_no_code_came_of_an_idea(tmp_path: Path) -> None:
    class Two(Numbered):
        def __call__(self, body: dict[str, Any]) -> Step:
            if self.kernels and not is_code(body):
                return Say(json.dumps([{"title": "prefetch cachelines", "transformation": "prefetch"}]))
            return super().__call__(body)

    async with ScriptedOpenAI(Two(first_idea)) as server:
        await run(tmp_path, server, num_rounds=2)
        second = [body["messages"][1]["content"] for body in server.requests if not is_code(body)][1]
    assert re.search(r"^no code: try 0.*; tiny answered twice", second, re.MULTILINE)


async def test_a_useless_repair_ends_the_repairs_and_leaves_a_try_to_the_escalation(tmp_path: Path) -> None:
    def useless(asked: str) -> bool:
        return "This candidate was written" in asked and "you are the last one asked" not in asked

    def wrong(asked: str) -> bool:
        return "Carry out this idea" in asked

    given = {"num_rounds": 1, "branching_factor": 1, "max_repairs": 3, "escalation_model": "tiny"}
    async with ScriptedOpenAI(Useless(useless, wrong)) as server:
        results = await run(tmp_path, server, **given)
        asked = len(server.requests)
        assert untimed(await run(tmp_path, server, **given)) == untimed(results) and len(server.requests) == asked == 5
    assert [(one["attempt"], one["step"]) for one in results["unwritten"]] == [(0, 1)]
    assert results["status"] == "improved" and results["trials"] == 2


async def test_where_no_ideas_come_the_run_ends_and_delivers_the_best_so_far(
    tmp_path: Path,
) -> None:
    mind = Useless(lambda asked: "Propose" in asked and mind.kernels > 0)
    events: list[Event] = []
    async with ScriptedOpenAI(mind) as server:
        results = await run(tmp_path, server, events, num_rounds=3)
    stop = next(event for event in events if isinstance(event, Stopped))
    assert results["stopped"] == stop.reason and not stop.spent and results["status"] == "improved"
    sentence = r"the search ends in round 2: no new ideas came: tiny answered twice .*: choose another model"
    assert re.match(sentence, stop.reason)
    again = Mind()
    again.words = (digest(n).translate(LETTERS) for n in count(100))
    async with ScriptedOpenAI(again) as server:
        further = await run(tmp_path, server, num_rounds=3)
        assert not is_code(server.requests[0]), "a resumed run asks again"
    assert further["rounds"] == 3 and further["stopped"] is None


async def test_the_original_is_delivered_where_the_first_ideas_cannot_be_used(tmp_path: Path) -> None:
    async with ScriptedOpenAI(lambda _: Say('[{"title": ')) as server:
        results = await run(tmp_path, server)
        assert len(server.requests) == 2
    assert results["status"] == "no_improvement" and "no new ideas came: tiny answered twice" in results["stopped"]


async def test_a_model_may_say_that_nothing_beats_the_original(tmp_path: Path) -> None:
    async with ScriptedOpenAI(lambda _: Say('{"ideas": []}')) as server:
        results = await run(tmp_path, server)
        assert len(server.requests) == 1, "it is not asked again"
    assert (results["status"], results["stopped"]) == (
        "no_improvement",
        "the search ends in round 1: no new ideas came",
    )


async def test_useless_ideas_on_one_parent_leave_those_on_the_others(tmp_path: Path) -> None:
    class Once(Mind):
        """Of the second round's questions for ideas, the first two are answered uselessly: one parent's."""

        useless = 2

        def __call__(self, body: dict[str, Any]) -> Step:
            if self.kernels and not is_code(body) and self.useless:
                self.useless -= 1
                return Say("{}")
            return super().__call__(body)

    events: list[Event] = []
    async with ScriptedOpenAI(Once()) as server:
        results = await run(tmp_path, server, events, num_rounds=2, selection_percentage=1.0, branching_factor=2)
    said = [
        event.message for event in events if isinstance(event, Notice) and "no ideas on one parent" in event.message
    ]
    assert len(said) == 1 and results["rounds"] == 2 and results["stopped"] is None and results["trials"] > 2
