"""Asking a model: the real openai client against a scripted endpoint, files for a person, recorded calls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from kernel_agent.cassette import Replay
from kernel_agent.endpoint import Endpoint
from kernel_agent.errors import ProviderError, UsageError
from kernel_agent.llm import Malformed, Model, Question, Talk
from kernel_agent.manual import Manual
from kernel_agent.providers import PROVIDERS, open_model
from kernel_agent.settings import Settings
from tests.scripted_openai import Drop, Raw, Refuse, Say, ScriptedOpenAI, Stall, Step

TALK: Talk = (("system", "be brief"), ("user", "a number?"))


class Kept:
    """Calls in memory, as the journal keeps them."""

    def __init__(self) -> None:
        self.rows: dict[str, tuple[str, str, Mapping[str, Any]]] = {}

    def call(self, key: str) -> str | None:
        return self.rows[key][1] if key in self.rows else None

    def record_call(self, key: str, request_json: str, reply: str, usage: Mapping[str, Any]) -> None:
        self.rows.setdefault(key, (request_json, reply, usage))


def number(text: str) -> int:
    if not text.isdigit():
        raise Malformed(f"{text!r} is not a number")
    return int(text)


def endpoint(server: ScriptedOpenAI, **options: Any) -> Endpoint:
    return Endpoint("custom", "tiny", server.url, **{"key": "sk-secret", "first_wait_s": 0.001, **options})


async def ask(*script: Step, calls: Kept | None = None, **options: Any) -> int:
    async with ScriptedOpenAI(script) as server, Model(endpoint(server, **options), calls or Kept()) as model:
        return await model.ask(TALK, number)


async def test_a_reply_is_read_recorded_with_its_cost_and_never_paid_twice() -> None:
    calls = Kept()
    async with ScriptedOpenAI([Say("41")]) as server, Model(endpoint(server), calls) as model:
        assert await model.ask(TALK, number) == 41
        assert await model.ask(TALK, number) == 41
        assert len(server.requests) == 1
        assert server.requests[0]["messages"] == [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "a number?"},
        ]
        assert (model.usage.calls, model.usage.prompt_tokens, model.usage.completion_tokens) == (1, 100, 10)
    request, reply, usage = calls.rows[Question(TALK).key]
    assert json.loads(request) == [list(turn) for turn in TALK]
    assert (reply, usage["model"], usage["prompt_tokens"], usage["completion_tokens"]) == ("41", "tiny", 100, 10)
    assert "sk-secret" not in repr(calls.rows)


async def test_a_reply_that_cannot_be_used_is_quoted_back_once() -> None:
    calls = Kept()
    async with ScriptedOpenAI([Say("many"), Say("7")]) as server, Model(endpoint(server), calls) as model:
        assert await model.ask(TALK, number) == 7
        assistant, complaint = server.requests[1]["messages"][2:]
    assert assistant == {"role": "assistant", "content": "many"}
    assert "'many' is not a number" in complaint["content"]
    assert await Model(Replay(), calls).ask(TALK, number) == 7


async def test_half_a_character_in_a_reply_does_not_stop_the_recording() -> None:
    calls = Kept()
    with pytest.raises(ProviderError):
        await ask(Raw(r'{"model": "m", "choices": [{"index": 0, "message": {"content": "\ud800"}}]}'), calls=calls)
    assert calls.call(Question(TALK).key) == "?"


async def test_two_unusable_replies_end_in_one_sentence_and_a_resumed_run_asks_again() -> None:
    calls = Kept()
    with pytest.raises(ProviderError, match=r"tiny answered twice .*'more' is not a number, and was cut off"):
        await ask(Say("many"), Say("more", "length"), calls=calls)
    assert await ask(Say("9"), calls=calls) == 9


async def test_a_full_endpoint_is_asked_again_after_what_retry_after_says() -> None:
    date = format_datetime(datetime.now(UTC) - timedelta(seconds=1), usegmt=True)
    waits = [Refuse(429, headers={"Retry-After": "0.01"}), Refuse(503, headers={"Retry-After": date}), Refuse(500)]
    assert await ask(*waits, Say("5")) == 5


async def test_a_wait_longer_than_a_call_may_take_is_refused_at_once() -> None:
    with pytest.raises(ProviderError, match="429: the account's rate or credit is used up"):
        await ask(Refuse(429, headers={"Retry-After": "3600"}), timeout_s=60)


@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        (Refuse(400, "no  such\nparameter"), r"refused with 400: see its message \(.*no such parameter"),
        (Refuse(401, "bad key sk-secret"), r"custom \(tiny\) refused with 401: check the key\.$"),
        (Refuse(402), "no credit left"),
        (Refuse(403), "this key may not use this model"),
        (Refuse(404), "there is no model tiny at http"),
        (Refuse(413), "too long for this model"),
        (Refuse(429, code="insufficient_quota"), "used up; wait, or lower --max-concurrent-calls"),
        (Raw("{not json"), "not JSON"),
        (Raw("<html>", "text/html"), "without a completion"),
        (Raw('{"error": "upstream"}'), "without a completion"),
        (Drop(), "cannot be reached at http"),
    ],
)
async def test_what_does_not_pass_by_waiting_is_refused_at_once(step: Step, sentence: str) -> None:
    async with ScriptedOpenAI([step]) as server, Model(endpoint(server), Kept()) as model:
        with pytest.raises(ProviderError, match=sentence) as refusal:
            await model.ask(TALK, number)
        assert len(server.requests) == 1
    assert "sk-secret" not in str(refusal.value)
    assert "\n" not in str(refusal.value)


async def test_an_endpoint_that_stays_broken_is_left_after_the_last_retry() -> None:
    async with ScriptedOpenAI(lambda _: Refuse(500)) as server, Model(endpoint(server, retries=2), Kept()) as model:
        with pytest.raises(ProviderError, match="500: the fault is on its side; resume the run later"):
            await model.ask(TALK, number)
        assert len(server.requests) == 3


async def test_an_endpoint_that_does_not_answer_in_time_is_said_to_be_slow() -> None:
    with pytest.raises(ProviderError, match=r"did not answer within 0\.05 s"):
        await ask(Stall(), timeout_s=0.05)


async def test_an_endpoint_that_is_not_there_is_said_to_be_unreachable() -> None:
    async with ScriptedOpenAI([]) as server:
        gone = server.url
    async with Model(Endpoint("custom", "tiny", gone), Kept()) as model:
        with pytest.raises(ProviderError, match="cannot be reached at http"):
            await model.ask(TALK, number)


async def test_no_more_questions_are_open_at_once_than_allowed() -> None:
    async with (
        ScriptedOpenAI(lambda _: Say("1"), gate=3) as server,
        Model(endpoint(server, concurrency=3), Kept()) as model,
        asyncio.TaskGroup() as group,
    ):
        for n in range(9):
            group.create_task(model.ask((("user", str(n)),), number))
    assert (server.peak, len(server.requests)) == (3, 9)


async def test_a_person_answers_in_a_file_and_a_resumed_run_keeps_the_number(tmp_path: Path) -> None:
    said: list[str] = []
    asked = asyncio.Event()

    def say(message: str) -> None:
        said.append(message)
        asked.set()

    model = Model(Manual(tmp_path / "manual", say, poll_s=0.01), Kept())
    first = asyncio.create_task(model.ask(TALK, number))
    await asked.wait()
    prompt = tmp_path / "manual" / "001.prompt.md"
    assert "# user\n\na number?\n" in prompt.read_text()
    assert str(tmp_path / "manual" / "001.reply.md") in said[0]
    first.cancel()
    (tmp_path / "manual" / "001.reply.md").write_text("12")
    assert await model.ask(TALK, number) == 12
    (tmp_path / "manual" / "002.reply.md").write_text("13")
    assert await model.ask((("user", "another?"),), number) == 13


async def test_replay_knows_only_what_was_recorded() -> None:
    with pytest.raises(ProviderError, match="is not among the recorded ones"):
        await Model(Replay(), Kept()).ask(TALK, number)


def opened(provider: str, tmp_path: Path, **settings: Any) -> Model:
    return open_model(provider, Settings(_env_file=None, **settings), Kept(), tmp_path)


@pytest.mark.parametrize(
    ("provider", "settings", "sentence"),
    [
        ("openai", {}, "Provider openai needs a key: set OPENAI_API_KEY"),
        ("gemini", {"gemini_api_key": "  "}, "Provider gemini needs a key: set GEMINI_API_KEY"),
        ("openrouter", {"openrouter_api_key": "k"}, "needs the name of a model"),
        ("vllm", {}, "needs the name of a model"),
        ("custom", {"model_name": "m"}, "give --base-url"),
        ("clippy", {}, "There is no provider clippy"),
    ],
)
def test_what_a_provider_lacks_is_said(
    provider: str, settings: dict[str, Any], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for row in PROVIDERS.values():
        if row.key:
            monkeypatch.delenv(row.key.upper(), raising=False)
    with pytest.raises((ProviderError, UsageError), match=sentence):
        opened(provider, tmp_path, **settings)


async def test_a_provider_gets_its_own_key_and_address(tmp_path: Path) -> None:
    async with (
        ScriptedOpenAI([Say("1")]) as server,
        opened("gemini", tmp_path, gemini_api_key="own", openai_api_key="other", base_url=server.url) as model,
    ):
        assert await model.ask(TALK, number) == 1
    assert server.keys == ["bearer own"]
    assert server.requests[0]["model"] == PROVIDERS["gemini"].model
