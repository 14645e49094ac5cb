"""Asking a model: the real openai client against a scripted endpoint, files for a person, recorded calls."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from kernel_agent.errors import ProviderError, Unusable, UsageError, Waiting
from kernel_agent.llm.call_site import of_ideas
from kernel_agent.llm.cassette import Replay
from kernel_agent.llm.manual import ManualModel
from kernel_agent.llm.model import Malformed, Model, Question, Talk, Usage
from kernel_agent.llm.open_model import open_model
from kernel_agent.llm.openai_compatible import Endpoint, Extras
from kernel_agent.providers import PROVIDERS
from kernel_agent.settings import Settings, rows
from tests.support.scripted_openai import (
    Drop,
    Events,
    Later,
    Raw,
    Refuse,
    Say,
    ScriptedOpenAI,
    Stall,
    Step,
    Whole,
    chunks,
)

TALK: Talk = (("system", "be brief"), ("user", "a number?"))


class Kept:
    """Calls in memory, as the journal keeps them."""

    def __init__(self) -> None:
        self.rows: dict[str, tuple[str, str, Mapping[str, Any]]] = {}

    def call(self, key: str) -> str | None:
        return self.rows[key][1] if key in self.rows else None

    def record_call(self, key: str, request_json: str, reply: str, usage: Mapping[str, Any]) -> None:
        self.rows[key] = request_json, reply, usage


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
    with pytest.raises(Unusable, match=r"tiny answered twice .*'more' is not a number, and was cut off"):
        await ask(Say("many"), Say("more", "length"), calls=calls)
    assert [reply for _, reply, _ in calls.rows.values()] == ["many", "more"], "what was paid for is kept"
    assert await ask(Say("9"), calls=calls) == 9
    assert await ask(calls=calls) == 9


class Heard(asyncio.Event):
    """Set by the first word."""

    def __call__(self, message: str) -> None:
        self.said = message
        self.set()


async def asked_at_once(model: Model, count: int) -> None:
    async with model, asyncio.TaskGroup() as group:
        for n in range(count):
            group.create_task(model.ask((("user", str(n)),), number))


async def test_after_a_refused_call_those_under_way_are_kept_and_no_other_goes_out() -> None:
    calls, heard = Kept(), Heard()
    steps = iter((Refuse(401), Later(Say("1"), heard), Later(Say("2"), heard)))
    async with ScriptedOpenAI(lambda _: next(steps), gate=3) as server:
        with pytest.raises(ExceptionGroup) as fault:
            await asked_at_once(Model(endpoint(server), calls, 3, heard), 9)
        assert len(server.requests) == 3
    assert {str(one) for one in fault.value.exceptions} == {"custom (tiny) refused with 401: check the key."}
    assert sorted(reply for _, reply, _ in calls.rows.values()) == ["1", "2"]
    assert heard.said.endswith("Model calls under way: 2; their replies are paid for, so they are kept.")


async def test_a_call_under_way_that_fails_too_does_not_hide_the_first_fault() -> None:
    heard = Heard()
    steps = iter((Refuse(401), Later(Refuse(402), heard)))
    async with ScriptedOpenAI(lambda _: next(steps), gate=2) as server:
        with pytest.raises(ExceptionGroup) as fault:
            await asked_at_once(Model(endpoint(server), Kept(), 2, heard), 2)
    assert "401" in str(fault.value.exceptions[0])


async def test_a_call_that_fails_after_its_asker_left_leaves_no_untaken_exception() -> None:
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
    steps = iter((Refuse(401), Later(Refuse(402), left := asyncio.Event())))
    async with ScriptedOpenAI(lambda _: next(steps), gate=2) as server, Model(endpoint(server), Kept(), 2) as model:
        with pytest.raises(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                for n in range(2):
                    group.create_task(model.ask((("user", str(n)),), number))
        left.set()
        await asyncio.wait(model._under_way)
    gc.collect()
    assert told == []


async def test_whoever_stops_the_run_waits_for_no_reply() -> None:
    async with ScriptedOpenAI(lambda _: Stall(), gate=2) as server:
        work = asyncio.create_task(asked_at_once(Model(endpoint(server), Kept(), 2), 4))
        async with server._changed:
            await server._changed.wait_for(lambda: server.peak == 2)
        work.cancel()
        async with asyncio.timeout(10):
            with pytest.raises(asyncio.CancelledError):
                await work


async def test_a_full_endpoint_is_asked_again_after_what_retry_after_says() -> None:
    date = format_datetime(datetime.now(UTC) - timedelta(seconds=1), usegmt=True)
    waits = [Refuse(429, headers={"Retry-After": "0.01"}), Refuse(503, headers={"Retry-After": date}), Refuse(500)]
    assert await ask(*waits, Say("5")) == 5


async def test_a_wait_longer_than_a_call_may_take_is_refused_at_once() -> None:
    with pytest.raises(ProviderError, match="429: the account's rate or credit is used up"):
        await ask(Refuse(429, headers={"Retry-After": "3600"}), timeout_s=60)


REFUSED = Refuse(400, "no  such\nparameter")


@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        (REFUSED, r"refused with 400: see its message \(.*no such parameter"),
        (Refuse(401, "bad key sk-secret"), r"custom \(tiny\) refused with 401: check the key\.$"),
        (Refuse(402), "no credit left"),
        (Refuse(403), "this key may not use this model"),
        (Refuse(404), "there is no model tiny at http"),
        (Refuse(413), "too long for this model"),
        (Refuse(429, code="insufficient_quota"), "used up; wait, or lower --max-concurrent-calls"),
        (Raw("{not json"), "not JSON"),
        (Raw("<html>", "text/html"), "not JSON"),
        (Raw('{"error": "upstream"}'), "without a completion"),
        (Raw('{"choices": [{"message": {"content": ["a"]}}]}'), "something else than text"),
        (Raw('{"choices": [7]}'), "without a completion"),
        (Raw("[]"), "without a completion"),
        (Raw("7"), "without a completion"),
        (Events(("{not json",)), "not JSON"),
        (Raw("[" * 100_000), "not JSON"),
        (Events(("[" * 100_000,)), "not JSON"),
        (Events((json.dumps({"choices": [{"delta": {"content": 5}}]}),)), "something else than text"),
        (Refuse(403, "\x1b[2Jno\x07\ud83d"), r"\(Error code: 403 - no\?\)\.$"),
    ],
)
async def test_what_does_not_pass_by_waiting_is_refused_at_once(step: Step, sentence: str) -> None:
    async with ScriptedOpenAI(lambda _: step) as server, Model(endpoint(server), Kept()) as model:
        with pytest.raises(ProviderError, match=sentence) as refusal:
            await model.ask(TALK, number)
        assert len(server.requests) == (3 if step == REFUSED else 1), "a parameter may be what it refuses"
    assert "sk-secret" not in str(refusal.value)
    assert "\n" not in str(refusal.value)


CUT = tuple(json.dumps(row) for row in chunks("tiny", "1234", finish=None))


@pytest.mark.parametrize(
    ("step", "fault"),
    [
        (Drop(), "cut"),
        (Events(CUT), "the stream ended in the middle"),
        (Events(()), "the stream ended in the middle"),
        (Events((*CUT[:1], '{"error": {"message": "over\\nloaded sk-secret"}}')), "it said: over loaded <key>"),
    ],
)
async def test_what_breaks_off_is_asked_again_and_at_last_said_to_have_broken_off(step: Step, fault: str) -> None:
    assert await ask(step, Say("5")) == 5
    async with ScriptedOpenAI(lambda _: step) as server, Model(endpoint(server, retries=1), Kept()) as model:
        with pytest.raises(ProviderError, match=rf"broke off again and again \(.*{fault}.*\): resume later"):
            await model.ask(TALK, number)
        assert len(server.requests) == 2


async def test_a_slow_stream_is_read_to_its_end_within_the_time_of_a_call() -> None:
    rows = tuple(json.dumps(row) for row in chunks("tiny", "123456"))
    assert await ask(Events(rows, every_s=0.02)) == 123456
    with pytest.raises(ProviderError, match=r"did not answer within 0\.2 s"):
        await ask(Events(rows * 100, every_s=0.02), timeout_s=0.2)


async def test_tokens_are_estimated_where_the_endpoint_counts_none() -> None:
    for step in (Whole("123456", counted=False), Events(tuple(json.dumps(r) for r in chunks("m", "123456")[:3]))):
        async with ScriptedOpenAI([step]) as server, Model(endpoint(server), Kept()) as model:
            assert await model.ask(TALK, number) == 123456
            assert (model.usage.prompt_tokens, model.usage.completion_tokens) == (6, 2)


END = json.dumps({"choices": [{"delta": {}, "finish_reason": "stop"}]})
TOLD = json.dumps({"choices": [{"delta": {"content": "123456"}}]})
STRANGE = ("5", "null", "[]", '"x"', '{"type": "ping"}', '{"choices": 5}', '{"choices": ["x"]}')


@pytest.mark.parametrize("row", [*STRANGE, '{"choices": [{"delta": "x"}]}', '{"choices": [], "model": 5}'])
async def test_what_is_no_piece_of_a_stream_is_passed_over(row: str) -> None:
    assert await ask(Events((row, TOLD, row, END))) == 123456


async def test_a_text_in_parts_is_put_together_without_what_was_thought() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "7"}]}, {"type": "text", "text": "12"}]
    whole = Raw(json.dumps({"choices": [{"message": {"content": [*parts, {"type": "text", "text": "3"}]}}]}))
    assert await ask(whole) == 123
    assert await ask(Events((json.dumps({"choices": [{"delta": {"content": parts}}]}), END))) == 12


async def test_a_stream_without_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernel_agent.llm.openai_compatible.MOST_READ", 30)
    with pytest.raises(ProviderError, match="answered without end"):
        await ask(Events((TOLD,) * 9))


COUNTS = (-1, 0, 10**30, True, "9", None, 1.5, [1])


@pytest.mark.parametrize("count", COUNTS, ids=map(str, COUNTS))
async def test_a_count_that_cannot_be_is_not_believed(count: Any) -> None:
    for given, made in ((count, 5), (5, count), (count, count)):
        usage = {"prompt_tokens": given, "completion_tokens": made}
        whole = {"choices": [{"message": {"content": "123456"}}], "usage": usage}
        for step in (Raw(json.dumps(whole)), Events((TOLD, json.dumps({"usage": usage}), END))):
            async with ScriptedOpenAI([step]) as server, Model(endpoint(server), Kept()) as model:
                await model.ask(TALK, number)
                assert (model.usage.prompt_tokens, model.usage.completion_tokens) == (6, 2)


async def test_what_broke_off_once_begun_is_counted_and_what_never_began_is_not() -> None:
    steps = [Events((TOLD,)), Refuse(500), Drop(), Events((TOLD, END))]
    async with ScriptedOpenAI(steps) as server, Model(endpoint(server), Kept()) as model:
        await model.ask(TALK, number)
        assert (model.usage.prompt_tokens, model.usage.completion_tokens) == (3 * 6, 2 + 0 + 2)
    async with ScriptedOpenAI([Refuse(500)] * 2 + [Events((TOLD,))] * 2) as server:
        for lost in ((0, 0), (12, 4)):
            whole = endpoint(server, retries=1)
            with pytest.raises(ProviderError) as fault:
                await whole.answer(Question(TALK))
            used = getattr(fault.value, "lost", Usage())
            assert (used.prompt_tokens, used.completion_tokens) == lost
            await whole.close()


async def test_a_model_s_name_for_itself_is_one_line_of_plain_text() -> None:
    strange = json.dumps({"choices": [{"message": {"content": "no"}}], "model": "\x1b[2Ja\nb\ud800" + "c" * 999})
    with pytest.raises(ProviderError, match=r"^a b\?c{100,250}\.\.\. answered twice"):
        await ask(Raw(strange), Raw(strange))


async def test_a_json_reply_to_a_question_for_a_stream_is_taken() -> None:
    assert await ask(Whole("6")) == 6


SCHEMA = {"type": "object"}


def picky(*unknown: str, tell: bool = True) -> Any:
    """An endpoint that refuses parameters it does not know, saying which one or not."""

    def choose(body: dict[str, Any]) -> Step:
        found = next((name for name in unknown if name in body), None)
        if found is None:
            return Say("8")
        return Refuse(400, f"Unsupported parameter {found}", param=found if tell else None)

    return choose


@pytest.mark.parametrize("tell", [True, False])
async def test_parameters_that_an_endpoint_refuses_are_left_out_and_that_is_said_once(tell: bool) -> None:
    said: list[str] = []
    script = picky("response_format", "temperature", "max_tokens", tell=tell)
    extras = Extras(temperature=0.2, max_tokens=50)
    async with (
        ScriptedOpenAI(script) as server,
        Model(endpoint(server, extras=extras, on_notice=said.append), Kept()) as model,
    ):
        assert await model.ask(TALK, number, "ideas", schema=SCHEMA) == 8
        first = len(server.requests)
        assert await model.ask((("user", "again"),), number, "ideas", schema=SCHEMA) == 8
        assert len(server.requests) == first + 1
        body = server.requests[-1]
    assert not {"response_format", "temperature", "max_tokens"} & set(body)
    assert "custom (tiny) does not take `temperature`: left out from now on." in said
    assert len(said) == len(set(said))
    if tell:
        assert body["max_completion_tokens"] == 50 and body["stream"], "what it takes is still sent"


@pytest.mark.parametrize("tell", [True, False])
async def test_where_a_budget_needs_the_limit_of_a_reply_none_is_asked_without_it(tell: bool) -> None:
    extras = Extras(temperature=0.2, max_tokens=50, bounded=True)
    takes_one = picky("response_format", "temperature", "max_tokens", tell=tell)
    async with ScriptedOpenAI(takes_one) as server, Model(endpoint(server, extras=extras), Kept()) as model:
        assert await model.ask(TALK, number, "ideas", schema=SCHEMA) == 8
        assert server.requests[-1]["max_completion_tokens"] == 50
    takes_none = picky("max_tokens", "max_completion_tokens", tell=tell)
    async with ScriptedOpenAI(takes_none) as server, Model(endpoint(server, extras=extras), Kept()) as model:
        with pytest.raises(ProviderError, match="takes no limit on its replies" if tell else "Unsupported parameter"):
            await model.ask(TALK, number)
        assert all({"max_tokens", "max_completion_tokens"} & set(body) for body in server.requests)


async def test_a_schema_and_the_limits_are_sent_in_openais_form() -> None:
    extras = Extras(0.5, 99, "low", "max_completion_tokens")
    async with ScriptedOpenAI([Say("1")]) as server, Model(endpoint(server, extras=extras), Kept()) as model:
        await model.ask(TALK, number, "ideas", schema=SCHEMA)
        body = server.requests[0]
    assert body["response_format"]["json_schema"] == {"name": "ideas", "strict": True, "schema": SCHEMA}
    assert (body["temperature"], body["max_completion_tokens"], body["reasoning_effort"]) == (0.5, 99, "low")
    assert body["stream_options"] == {"include_usage": True}


async def test_a_refusal_that_no_parameter_causes_is_quoted_and_nothing_is_learnt() -> None:
    said: list[str] = []
    script = [*[Refuse(400, "maximum context length")] * 3, Say("4")]
    async with ScriptedOpenAI(script) as server, Model(endpoint(server, on_notice=said.append), Kept()) as model:
        with pytest.raises(ProviderError, match="maximum context length"):
            await model.ask(TALK, number)
        assert await model.ask((("user", "shorter"),), number) == 4
        assert server.requests[-1]["stream"]
    assert said == []


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
        Model(endpoint(server), Kept(), 3) as model,
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

    model = Model(ManualModel(tmp_path / "manual", say, poll_s=0.01), Kept())
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


async def test_a_question_is_written_again_until_it_is_answered(tmp_path: Path) -> None:
    model, place = ManualModel(tmp_path, poll_s=0.01, wait=False), of_ideas(1)
    for words in ("as it was", "with what is known now"):
        with pytest.raises(Waiting):
            await model.answer(Question((("user", words),), place=place))
    (prompt,) = tmp_path.glob("*.prompt.md")
    assert "with what is known now" in prompt.read_text()
    (tmp_path / "001.reply.md").write_text("12")
    assert (await model.answer(Question((("user", "in other words"),), place=place))).text == "12"
    assert "with what is known now" in prompt.read_text()


TEXT = "```python\nx = 'ä'\n```\n"
WRITTEN = {
    "a mark": TEXT.encode("utf-8-sig"),
    "other line ends": TEXT.replace("\n", "\r\n").encode(),
    "what PowerShell writes": b"\xff\xfe" + TEXT.replace("\n", "\r\n").encode("utf-16-le"),
    "UTF-16 the other way": b"\xfe\xff" + TEXT.encode("utf-16-be"),
}


@pytest.mark.parametrize("held", WRITTEN.values(), ids=WRITTEN)
async def test_a_reply_is_read_as_whatever_text_it_was_written(tmp_path: Path, held: bytes) -> None:
    (tmp_path / "001.reply.md").write_bytes(held)
    assert (await ManualModel(tmp_path, poll_s=0.01).answer(Question(TALK))).text == TEXT


@pytest.mark.parametrize("make", [lambda reply: reply.touch(), lambda reply: reply.symlink_to(reply.name)])
async def test_a_reply_with_nothing_in_it_is_none(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "001.reply.md")
    with pytest.raises(Waiting, match="1 prompt waits"):
        await ManualModel(tmp_path, poll_s=0.01, wait=False).answer(Question(TALK))


async def test_a_folder_in_the_place_of_a_reply_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "001.reply.md").mkdir()
    with pytest.raises(ProviderError, match=r"001\.reply\.md cannot be read \(Is a directory\)\.$"):
        await ManualModel(tmp_path, poll_s=0.01, wait=False).answer(Question(TALK))


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
        ("openai", {"openai_api_key": "k", "code_model": "gemini:flash"}, "Provider gemini needs a key"),
    ],
)
def test_what_a_provider_lacks_is_said(
    provider: str, settings: dict[str, Any], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for row in rows():
        monkeypatch.delenv(row.variable, raising=False)
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


async def test_each_role_asks_the_model_it_is_given_and_its_own_provider(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"model_name": "all", "ideas_model": "big:70b", "code_model": "openai:coder", "openai_api_key": "k"}
    async with ScriptedOpenAI(lambda _: Say("1")) as general, ScriptedOpenAI(lambda _: Say("2")) as other:
        monkeypatch.setitem(PROVIDERS, "openai", replace(PROVIDERS["openai"], base_url=other.url))  # type: ignore
        async with opened("custom", tmp_path, base_url=general.url, gateway_api_key="g", **settings) as model:
            assert await model.ask(TALK, number, "ideas") == 1
            assert await model.ask((("user", "a"),), number, "code") == 2
    assert [body["model"] for body in general.requests] == ["big:70b"], "what stands before a colon may be no provider"
    assert [body["model"] for body in other.requests] == ["coder"]
    assert (general.keys, other.keys) == (["bearer g"], ["bearer k"])


@pytest.mark.parametrize(
    ("provider", "keys", "sent"),
    [
        ("gemini", {"GOOGLE_API_KEY": "g"}, "bearer g"),
        ("custom", {"LLM_GATEWAY_KEY": "own", "OPENAI_API_KEY": "other"}, "bearer own"),
        ("custom", {"OPENAI_API_KEY": "other"}, "bearer other"),
        ("vllm", {"OPENAI_API_KEY": "other"}, "bearer none"),
        ("anthropic", {"ANTHROPIC_API_KEY": "a"}, "bearer a"),
    ],
)
async def test_keys_come_from_the_providers_own_variables(
    provider: str, keys: dict[str, str], sent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for row in rows():
        monkeypatch.delenv(row.variable, raising=False)
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    async with ScriptedOpenAI([Say("1")]) as server:
        async with opened(provider, tmp_path, base_url=server.url, model_name="m") as model:
            assert await model.ask(TALK, number) == 1
        assert server.keys == [sent]
