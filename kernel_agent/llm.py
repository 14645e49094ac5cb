"""One question to a model: looked up among the recorded calls, else asked, recorded and read."""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol, Self, TypeVar

from kernel_agent.errors import ProviderError, UsageError
from kernel_agent.journal import MANUAL
from kernel_agent.settings import Settings
from kernel_agent.types import digest

if TYPE_CHECKING:
    from openai import APIStatusError
    from pydantic import SecretStr

GEMINI_URL = "https://generativelanguage.googleapis.com/v1beta/openai/"
T = TypeVar("T")
Role = Literal["system", "user", "assistant"]
Talk = tuple[tuple[Role, str], ...]
"""A conversation so far: pairs of who speaks and what is said. The last one is the question."""

COMPLAINT = "That reply cannot be used: {fault}. Answer the same question again, whole, in the form asked for."


@dataclass(frozen=True, slots=True)
class Provider:
    """Who can be the model: its OpenAI-compatible address, the setting with its key, the model where none is named.

    No address: --base-url must give it. No key setting: it needs no key.
    """

    name: str
    base_url: str | None = None
    key: str | None = None
    model: str | None = None


PROVIDERS: Mapping[str, Provider] = {
    row.name: row
    for row in (
        Provider("openai", "https://api.openai.com/v1", "openai_api_key", "gpt-5"),
        Provider("gemini", GEMINI_URL, "gemini_api_key", "gemini-2.5-pro"),
        Provider("anthropic", "https://api.anthropic.com/v1/", "anthropic_api_key", "claude-sonnet-4-5"),
        Provider("openrouter", "https://openrouter.ai/api/v1", "openrouter_api_key"),
        Provider("ollama", "http://localhost:11434/v1"),
        Provider("vllm", "http://localhost:8000/v1"),
        Provider("custom"),
        Provider("manual"),
        Provider("replay"),
    )
}


@dataclass(frozen=True, slots=True)
class Usage:
    """What was paid for: calls that went out (recorded ones are free), their tokens and their seconds together."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.seconds + other.seconds,
        )


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back. `cut` says that the endpoint stopped at its token limit."""

    text: str
    model: str
    cut: bool = False
    usage: Usage = Usage()


class Malformed(Exception):  # noqa: N818
    """A reply that cannot be used; its text is quoted back to the model, once."""


class Calls(Protocol):
    """Where calls are kept: the journal. A key is written once; `usage` is what the call cost, as JSON values."""

    def call(self, key: str) -> str | None: ...
    def record_call(self, key: str, request_json: str, reply: str, usage: Mapping[str, Any]) -> None: ...


class Answers(Protocol):
    """Whoever answers: an endpoint, a person with files, or nobody (replay)."""

    async def answer(self, talk: Talk) -> Reply: ...
    async def close(self) -> None: ...


def key_of(talk: Talk) -> str:
    """The hash a call is recorded by: all that is said, and not who is asked, so any provider can replay it."""
    return digest(*(part for turn in talk for part in turn))


class Model:
    """Asks, and keeps every answer in `calls`; `usage` grows with what went out."""

    def __init__(self, answers: Answers, calls: Calls) -> None:
        self.usage = Usage()
        self._answers = answers
        self._calls = calls

    async def ask(self, talk: Talk, read: Callable[[str], T]) -> T:
        """The reply to `talk` as `read` understands it; where `read` raises Malformed, asked once more quoting why.

        Raises ProviderError when the endpoint refuses or the second reply cannot be used either; that one is not
        recorded, so that a resumed run asks again.
        """
        text = self._calls.call(key_of(talk))
        if text is None:
            reply = await self._asked(talk)
            self._keep(talk, reply)
            text = reply.text
        try:
            return read(text)
        except Malformed as fault:
            talk = (*talk, ("assistant", text or "(nothing)"), ("user", COMPLAINT.format(fault=fault)))
        known = self._calls.call(key_of(talk))
        reply = await self._asked(talk) if known is None else Reply(known, "the recorded model")
        try:
            value = read(reply.text)
        except Malformed as fault:
            cut = ", and was cut off at its token limit" if reply.cut else ""
            raise ProviderError(
                f"{reply.model} answered twice in a form that cannot be used ({fault}{cut}): "
                "choose another model with --model-name, then resume the run."
            ) from fault
        if known is None:
            self._keep(talk, reply)
        return value

    async def _asked(self, talk: Talk) -> Reply:
        started = time.monotonic()
        reply = await self._answers.answer(talk)
        spent = replace(reply.usage, calls=1, seconds=time.monotonic() - started)
        self.usage += spent
        text = reply.text.encode("utf-8", "replace").decode()  # JSON can hold half characters, storage cannot
        return replace(reply, text=text, usage=spent)

    def _keep(self, talk: Talk, reply: Reply) -> None:
        usage = {"model": reply.model, "cut": reply.cut, **asdict(reply.usage)}
        self._calls.record_call(key_of(talk), json.dumps(talk), reply.text, usage)

    async def close(self) -> None:
        await self._answers.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Endpoint:
    """An OpenAI-compatible HTTP endpoint: at most `concurrency` questions at a time, each at most `timeout_s` seconds.

    429 and 5xx are tried again up to `retries` times, after what Retry-After says or a jittered doubling of
    `first_wait_s`; all else is refused at once as one ProviderError.
    """

    def __init__(
        self,
        provider: str,
        model: str,
        url: str,
        *,
        key: str | None = None,
        concurrency: int = 4,
        timeout_s: float = 600.0,
        retries: int = 4,
        first_wait_s: float = 1.0,
    ) -> None:
        import openai  # heavy: only runs that ask an endpoint pay for it

        self._api = openai
        self._client = openai.AsyncOpenAI(api_key=key or "none", base_url=url, timeout=timeout_s, max_retries=0)
        self._name, self._model, self._url, self._key = f"{provider} ({model})", model, url, key
        self._slots = asyncio.Semaphore(concurrency)
        self._timeout_s, self._retries, self._first_wait_s = timeout_s, retries, first_wait_s

    async def answer(self, talk: Talk) -> Reply:
        async with self._slots:
            tries = 0
            while True:
                try:
                    return await self._once(talk)
                except self._api.APIStatusError as refusal:
                    asked = _retry_after(refusal.response.headers)
                    wait = self._first_wait_s * 2**tries * random.uniform(0.5, 1.5) if asked is None else asked
                    if tries == self._retries or wait > self._timeout_s or not _passing(refusal):
                        self._refuse(refusal)
                tries += 1
                await asyncio.sleep(wait)

    async def _once(self, talk: Talk) -> Reply:
        try:
            done = await self._client.chat.completions.create(
                model=self._model,
                messages=[{"role": role, "content": text} for role, text in talk],  # type: ignore[misc]
            )
        except self._api.APITimeoutError as fault:
            raise ProviderError(
                f"{self._name} did not answer within {self._timeout_s:g} s: resume later, or use a faster model."
            ) from fault
        except self._api.APIConnectionError as fault:
            raise ProviderError(
                f"{self._name} cannot be reached at {self._url}: is the address right, and is it up?"
            ) from fault
        except (json.JSONDecodeError, self._api.APIResponseValidationError) as fault:
            raise ProviderError(
                f"{self._name} answered with something that is not JSON: is {self._url} the right address?"
            ) from fault
        if not isinstance(done, self._api.types.chat.ChatCompletion) or not done.choices:
            raise ProviderError(f"{self._name} answered without a completion: is {self._url} the right address?")
        choice, used = done.choices[0], done.usage
        paid = Usage(prompt_tokens=used.prompt_tokens, completion_tokens=used.completion_tokens) if used else Usage()
        return Reply(choice.message.content or "", done.model or self._model, choice.finish_reason == "length", paid)

    def _refuse(self, refusal: APIStatusError) -> NoReturn:
        advice = {
            401: "check the key",
            402: "the account has no credit left",
            403: "this key may not use this model; choose another with --model-name",
            404: f"there is no model {self._model} at {self._url}; choose another with --model-name",
            413: "the prompt is too long for this model; choose one with a longer context",
            429: "the account's rate or credit is used up; wait, or lower --max-concurrent-calls, then resume the run",
        }.get(refusal.status_code)
        if advice is None:
            later = refusal.status_code >= 500
            advice = "the fault is on its side; resume the run later" if later else "see its message"
        said = "" if refusal.status_code == 401 else _one_line(refusal.message, self._key)
        raise ProviderError(f"{self._name} refused with {refusal.status_code}: {advice}{said}.") from refusal

    async def close(self) -> None:
        await self._client.close()


def _passing(refusal: APIStatusError) -> bool:
    """429 for lack of credit does not pass by waiting; OpenAI tells it apart by its code."""
    if refusal.status_code == 429:
        return refusal.code != "insufficient_quota"
    return refusal.status_code >= 500


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait by RFC 9110: a number, or a date."""
    value = headers.get("retry-after")
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None


def _one_line(text: str, key: str | None) -> str:
    text = re.sub(r"\s+", " ", text if key is None else text.replace(key, "<key>")).strip().rstrip(".")
    return f" ({text[:200]})" if text else ""


class Manual:
    """A person or another agent is the model: each question is a file, and its answer is awaited in the file beside it.

    A question asked before (a resumed run) keeps its number; `say` hears where to look.
    """

    def __init__(self, folder: Path, say: Callable[[str], None] | None = None, poll_s: float = 0.5) -> None:
        self._folder = folder
        self._say = say or (lambda _: None)
        self._poll_s = poll_s

    async def answer(self, talk: Talk) -> Reply:
        prompt = self._written(talk)
        reply = prompt.with_name(prompt.name.replace(".prompt.", ".reply."))
        if not reply.exists():
            self._say(f"waiting for {reply}: answer {prompt.name} there")
        seen = -1
        while True:
            size = reply.stat().st_size if reply.exists() else 0
            if size and size == seen:  # still for one poll: whoever writes it has finished
                return Reply(reply.read_text("utf-8", "replace"), "manual")
            seen = size
            await asyncio.sleep(self._poll_s)

    def _written(self, talk: Talk) -> Path:
        mark = f"<!-- call {key_of(talk)} -->\n"
        self._folder.mkdir(parents=True, exist_ok=True)
        asked = sorted(self._folder.glob("*.prompt.md"))
        for path in asked:
            with path.open() as file:
                if file.readline() == mark:
                    return path
        number = max((int(path.name.split(".")[0]) for path in asked), default=0) + 1
        path = self._folder / f"{number:03}.prompt.md"
        path.write_text(mark + "".join(f"\n# {role}\n\n{text}\n" for role, text in talk))
        return path

    async def close(self) -> None:
        pass


class Replay:
    """Nobody answers: only what is recorded exists."""

    async def answer(self, talk: Talk) -> Reply:
        raise ProviderError(
            f"Call {key_of(talk)} is not among the recorded ones: replay with that run's settings and code, "
            "or name a provider that can answer."
        )

    async def close(self) -> None:
        pass


def open_model(
    provider: str, settings: Settings, calls: Calls, run_dir: Path, say: Callable[[str], None] | None = None
) -> Model:
    """The model of a run by its provider's name (a row of PROVIDERS; `auto` is settled by the caller).

    Raises UsageError for an unknown provider or a missing model name or address, ProviderError for a missing key.
    """
    row = PROVIDERS.get(provider)
    if row is None:
        raise UsageError(f"There is no provider {provider}: choose one of {', '.join(PROVIDERS)}.")
    if provider == "manual":
        return Model(Manual(run_dir / MANUAL, say), calls)
    if provider == "replay":
        return Model(Replay(), calls)
    name = settings.model_name or row.model
    if name is None:
        raise UsageError(f"Provider {provider} needs the name of a model: give --model-name.")
    url = settings.base_url or row.base_url
    if url is None:
        raise UsageError(f"Provider {provider} has no address of its own: give --base-url.")
    secret: SecretStr | None = (
        getattr(settings, row.key or "openai_api_key") if row.key or provider == "custom" else None
    )
    key = secret.get_secret_value().strip() if secret else ""
    if row.key and not key:
        raise ProviderError(f"Provider {provider} needs a key: set {row.key.upper()} in the environment or in .env.")
    return Model(Endpoint(provider, name, url, key=key or None, concurrency=settings.max_concurrent_calls), calls)
