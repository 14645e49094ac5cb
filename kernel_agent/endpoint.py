"""An OpenAI-compatible HTTP endpoint: streamed replies, retries, and what it refuses in one sentence."""

from __future__ import annotations

import asyncio
import importlib
import json
import random
import re
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NoReturn

from kernel_agent.errors import ProviderError
from kernel_agent.llm import Question, Reply, Usage
from kernel_agent.types import JSON

if TYPE_CHECKING:
    from openai import APIStatusError

CHARACTERS_A_TOKEN = 3
"""By which tokens are counted where an endpoint does not say them: rather too many than too few."""


LIMITS = ("max_completion_tokens", "max_tokens")
"""What endpoints call the limit of a reply; reasoning models take the first alone."""


class Broken(Exception):  # noqa: N818
    """A connection or a stream that ended in the middle; asking again may help."""


@dataclass(frozen=True, slots=True)
class Extras:
    """What is asked of an endpoint beside the messages; None is not sent. `limit_name` is its name for `max_tokens`."""

    temperature: float | None = None
    max_tokens: int | None = None
    reasoning_effort: str | None = None
    limit_name: str = "max_tokens"

    def of(self, question: Question, unknown: Container[str] = ()) -> dict[str, Any]:
        """The parameters by name without the unknown ones, those first that an endpoint is likeliest not to take."""
        form = question.schema and {
            "type": "json_schema",
            "json_schema": {"name": question.role or "reply", "strict": True, "schema": question.schema},
        }
        limit = next((name for name in (self.limit_name, *LIMITS) if name not in unknown), self.limit_name)
        named = {
            "response_format": form,
            "reasoning_effort": self.reasoning_effort,
            "temperature": self.temperature,
            "stream_options": None if "stream" in unknown else {"include_usage": True},
            limit: self.max_tokens,
            "stream": True,
        }
        return {name: value for name, value in named.items() if value is not None and name not in unknown}


class Endpoint:
    """An OpenAI-compatible HTTP endpoint, which is given at most `timeout_s` seconds for a reply.

    429, 5xx and broken connections are tried again up to `retries` times, after what Retry-After says or a jittered
    doubling of `first_wait_s`. A parameter that is not taken (400, 422) is left out from then on, which `say` hears.
    All else is refused at once as one ProviderError.
    """

    remedy = "choose another model with --model-name"

    def __init__(
        self,
        provider: str,
        model: str,
        url: str,
        *,
        key: str | None = None,
        timeout_s: float = 600.0,
        retries: int = 4,
        first_wait_s: float = 1.0,
        extras: Extras | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        import openai  # heavy: only runs that ask an endpoint pay for it

        self._api = openai
        self._client = openai.AsyncOpenAI(api_key=key or "none", base_url=url, timeout=timeout_s, max_retries=0)
        self._name, self._model, self._url, self._key = f"{provider} ({model})", model, url, key
        self._timeout_s, self._retries, self._first_wait_s = timeout_s, retries, first_wait_s
        self._extras, self._say = extras or Extras(), say or (lambda _: None)
        self._unknown: set[str] = set()

    async def answer(self, question: Question) -> Reply:
        left_out: list[str] = []
        tries = 0
        while True:
            extras = self._extras.of(question, {*self._unknown, *left_out})
            try:
                reply = await self._once(question, extras)
                self._learn(left_out)
                return reply
            except self._api.APIStatusError as refusal:
                if refusal.status_code in (400, 422) and extras:
                    left_out.append(_refused(refusal.param, extras))
                    continue
                asked = _retry_after(refusal.response.headers)
                wait = self._wait(tries) if asked is None else asked
                if tries == self._retries or wait > self._timeout_s or not _passing(refusal):
                    self._refuse(refusal)
            except Broken as fault:
                if tries == self._retries:
                    raise ProviderError(f"{self._name} broke off again and again ({fault}): resume later.") from fault
                wait = self._wait(tries)
            tries += 1
            await asyncio.sleep(wait)

    def _wait(self, tries: int) -> float:
        return self._first_wait_s * float(2**tries) * random.uniform(0.5, 1.5)

    def _learn(self, left_out: list[str]) -> None:
        for name in left_out:
            if name not in self._unknown:
                self._unknown.add(name)
                self._say(f"{self._name} does not take `{name}`: left out from now on.")

    async def _once(self, question: Question, extras: JSON) -> Reply:
        messages = [{"role": speaker, "content": text} for speaker, text in question.talk]
        completions: Any = self._client.chat.completions.with_streaming_response
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                completions.create(model=self._model, messages=messages, **extras) as response,
            ):
                return await self._read(response, question)
        except (TimeoutError, self._api.APITimeoutError) as fault:
            raise ProviderError(
                f"{self._name} did not answer within {self._timeout_s:g} s: resume later, allow more with "
                "--call-timeout-s, or use a faster model."
            ) from fault
        except self._api.APIConnectionError as fault:
            if not type(fault.__cause__).__name__.startswith("Connect"):
                raise Broken("the connection was cut") from fault
            raise ProviderError(
                f"{self._name} cannot be reached at {self._url}: is the address right, and is it up?"
            ) from fault
        except (ValueError, self._api.APIResponseValidationError) as fault:
            raise ProviderError(
                f"{self._name} answered with something that is not JSON: is {self._url} the right address?"
            ) from fault

    async def _read(self, response: Any, question: Question) -> Reply:
        """The reply in whatever form it comes: events where the endpoint streams, else one JSON object."""
        try:
            if "text/event-stream" in response.headers.get("content-type", ""):
                return self._reply(await self._streamed(await response.parse()), question)
            body = json.loads(await response.read())
        except _transport_error(response) as fault:
            if "timeout" in type(fault).__name__.lower():
                raise TimeoutError from fault
            raise Broken("the reply was cut") from fault
        return self._reply(body, question)

    async def _streamed(self, stream: Any) -> JSON:
        """The chunks of a stream put together as one completion. Raises Broken where it ends before its end."""
        parts: list[str] = []
        finish = model = usage = None
        try:
            async for chunk in stream:
                for choice in chunk.choices or ():
                    parts.append((choice.delta and choice.delta.content) or "")
                    finish = choice.finish_reason or finish
                model, usage = chunk.model or model, chunk.usage or usage
        except self._api.APIStatusError:
            raise
        except self._api.APIError as fault:  # an error among the events
            raise Broken(f"it said: {_flat(fault.message, self._key)}") from fault
        if finish is None:
            raise Broken("the stream ended in the middle")
        used = usage.model_dump() if usage else None
        return {
            "choices": [{"message": {"content": "".join(parts)}, "finish_reason": finish}],
            "model": model,
            "usage": used,
        }

    def _reply(self, body: Any, question: Question) -> Reply:
        try:
            choice = body["choices"][0]
            text, cut = choice["message"].get("content") or "", choice.get("finish_reason") == "length"
        except (AttributeError, IndexError, KeyError, TypeError):
            raise ProviderError(
                f"{self._name} answered without a completion: is {self._url} the right address?"
            ) from None
        if not isinstance(text, str):
            raise ProviderError(f"{self._name} answered with something else than text.")
        return Reply(text, str(body.get("model") or self._model), cut, _usage(body.get("usage"), question, text))

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
        said = "" if refusal.status_code == 401 else _flat(refusal.message, self._key)
        said = f" ({said})" if said else ""
        raise ProviderError(f"{self._name} refused with {refusal.status_code}: {advice}{said}.") from refusal

    async def close(self) -> None:
        await self._client.close()


def _refused(param: str | None, extras: JSON) -> str:
    """The parameter that a refusal names, else the one that is likeliest not to be known."""
    first = (param or "").partition(".")[0]
    return first if first in extras else next(iter(extras))


def _usage(used: Any, question: Question, text: str) -> Usage:
    """What the endpoint says was used, else what the characters come to."""
    if isinstance(used, dict):
        given, made = used.get("prompt_tokens"), used.get("completion_tokens")
        if isinstance(given, int) and isinstance(made, int):
            return Usage(prompt_tokens=given, completion_tokens=made)
    asked = sum(len(said) for _, said in question.talk)
    return Usage(prompt_tokens=-(-asked // CHARACTERS_A_TOKEN), completion_tokens=-(-len(text) // CHARACTERS_A_TOKEN))


def _transport_error(response: Any) -> type[Exception]:
    """What the client's HTTP library raises while a body is read; openai wraps it only until the headers are there."""
    library = importlib.import_module(type(response.http_response).__module__.partition(".")[0])
    found: type[Exception] = library.TransportError
    return found


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


def _flat(text: str, key: str | None) -> str:
    return re.sub(r"\s+", " ", text if key is None else text.replace(key, "<key>")).strip().rstrip(".")[:200]
