"""An OpenAI-compatible HTTP endpoint: streamed replies, retries, and what it refuses in one sentence."""

from __future__ import annotations

import asyncio
import importlib
import json
import random
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard

from kernel_agent.errors import ProviderError
from kernel_agent.interfaces import OnNotice, ignore
from kernel_agent.llm.model import BrokenOff, Question, Reply, Usage
from kernel_agent.run.types import JSON
from kernel_agent.text import line

if TYPE_CHECKING:
    from openai import APIStatusError

CHARACTERS_A_TOKEN = 3
"""By which tokens are counted where an endpoint does not say them: rather too many than too few."""


LIMITS = ("max_completion_tokens", "max_tokens")
"""What endpoints call the limit of a reply; reasoning models take the first alone."""

COUNTS = ("prompt_tokens", "completion_tokens")
MOST_COUNTED = 10**9
"""Tokens above which a count is not believed."""

MOST_READ = 1 << 24
"""Characters of a stream after which it is left: no model says so much."""


class Broken(Exception):  # noqa: N818
    """A connection or a stream that ended in the middle; asking again may help."""


class Strange(Exception):  # noqa: N818
    """An answer that is JSON and no completion."""


@dataclass(frozen=True, slots=True)
class Extras:
    """What is asked of an endpoint beside the messages; None is not sent. `limit_name` is its name for `max_tokens`.

    With `bounded`, a reply without that limit is none: a budget counts on it.
    """

    temperature: float | None = None
    max_tokens: int | None = None
    reasoning_effort: str | None = None
    limit_name: str = "max_tokens"
    bounded: bool = False

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

    def spare(self, sent: JSON, unknown: Container[str]) -> tuple[str, ...]:
        """What of the parameters that were sent may be left out."""
        others = any(name not in unknown and name not in sent for name in LIMITS)
        return tuple(name for name in sent if name not in LIMITS or others or not self.bounded)


class Endpoint:
    """An OpenAI-compatible HTTP endpoint, which is given at most `timeout_s` seconds for a reply.

    429, 5xx and broken connections are tried again up to `retries` times, after what Retry-After says or a jittered
    doubling of `first_wait_s`. A parameter that is not taken (400, 422) is left out from then on, which
    `on_notice` hears.
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
        on_notice: OnNotice = ignore,
    ) -> None:
        import openai  # heavy: only runs that ask an endpoint pay for it

        self._api = openai
        self._client = openai.AsyncOpenAI(api_key=key or "none", base_url=url, timeout=timeout_s, max_retries=0)
        self._name, self._model, self._url, self._key = f"{provider} ({model})", model, url, key
        self._timeout_s, self._retries, self._first_wait_s = timeout_s, retries, first_wait_s
        self._extras, self._notice = extras or Extras(), on_notice
        self._unknown: set[str] = set()

    async def answer(self, question: Question) -> Reply:
        """The reply; its cost includes that of tries which broke off once something had come."""
        lost: list[Usage] = []
        try:
            reply = await self._answer(question, lost)
        except ProviderError as fault:
            raise (BrokenOff(str(fault), sum(lost, Usage())) if lost else fault) from fault.__cause__
        return replace(reply, usage=sum(lost, reply.usage))

    async def _answer(self, question: Question, lost: list[Usage]) -> Reply:
        left_out: list[str] = []
        tries = 0
        while True:
            unknown = {*self._unknown, *left_out}
            extras = self._extras.of(question, unknown)
            try:
                reply = await self._once(question, extras, lost)
                self._learn(left_out)
                return reply
            except self._api.APIStatusError as refusal:
                if refusal.status_code in (400, 422) and (spare := self._extras.spare(extras, unknown)):
                    left_out.append(self._refused(refusal.param, extras, spare))
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

    def _refused(self, param: str | None, sent: JSON, spare: Sequence[str]) -> str:
        """The parameter that a refusal names, else the one that is likeliest not to be known."""
        first = (param or "").partition(".")[0]
        if first in sent and first not in spare:
            raise ProviderError(
                f"{self._name} takes no limit on its replies, so a budget of dollars or tokens cannot be kept: "
                "choose another model with --model-name, or set no such budget."
            )
        return first if first in spare else spare[0]

    def _wait(self, tries: int) -> float:
        return self._first_wait_s * float(2**tries) * random.uniform(0.5, 1.5)

    def _learn(self, left_out: list[str]) -> None:
        for name in left_out:
            if name not in self._unknown:
                self._unknown.add(name)
                self._notice(f"{self._name} does not take `{name}`: left out from now on.")

    async def _once(self, question: Question, extras: JSON, lost: list[Usage]) -> Reply:
        heard: list[str] = []
        messages = [{"role": speaker, "content": text} for speaker, text in question.talk]
        completions: Any = self._client.chat.completions.with_streaming_response
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                completions.create(model=self._model, messages=messages, **extras) as response,
            ):
                heard.append("")
                reply = await self._read(response, question, heard)
                heard.clear()
                return reply
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
        except (ValueError, RecursionError, self._api.APIResponseValidationError) as fault:
            raise ProviderError(
                f"{self._name} answered with something that is not JSON: is {self._url} the right address?"
            ) from fault
        except Strange as fault:
            raise ProviderError(f"{self._name} answered {fault}: is {self._url} the right address?") from fault
        finally:
            if heard:
                lost.append(_estimate(question, "".join(heard)))

    async def _read(self, response: Any, question: Question, heard: list[str]) -> Reply:
        """The reply in whatever form it comes: events where the endpoint streams, else one JSON object."""
        try:
            if "text/event-stream" in response.headers.get("content-type", ""):
                return self._reply(await self._streamed(await response.parse(), heard), question)
            body = json.loads(await response.read())
        except _transport_error(response) as fault:
            if "timeout" in type(fault).__name__.lower():
                raise TimeoutError from fault
            raise Broken("the reply was cut") from fault
        return self._reply(body, question)

    async def _streamed(self, stream: Any, parts: list[str]) -> JSON:
        """The chunks of a stream put together as one completion, which `parts` gets as they come.

        Raises Broken where it ends before its end.
        """
        finish = model = usage = None
        left = MOST_READ
        try:
            async for chunk in stream:
                choices = getattr(chunk, "choices", None)
                for choice in choices if isinstance(choices, list) else ():
                    parts.append(_text(getattr(getattr(choice, "delta", None), "content", None)))
                    finish = getattr(choice, "finish_reason", None) or finish
                    left -= len(parts[-1])
                if left < 0:
                    raise Strange("without end")
                model, usage = getattr(chunk, "model", None) or model, getattr(chunk, "usage", None) or usage
        except self._api.APIStatusError:
            raise
        except self._api.APIError as fault:  # an error among the events
            raise Broken(f"it said: {_flat(fault.message, self._key)}") from fault
        if finish is None:
            raise Broken("the stream ended in the middle")
        return {
            "choices": [{"message": {"content": "".join(parts)}, "finish_reason": finish}],
            "model": model,
            "usage": {name: getattr(usage, name, None) for name in COUNTS},
        }

    def _reply(self, body: Any, question: Question) -> Reply:
        try:
            choice = body["choices"][0]
            said, cut = choice["message"].get("content"), choice.get("finish_reason") == "length"
        except (AttributeError, IndexError, KeyError, TypeError):
            raise Strange("without a completion") from None
        text = _text(said)
        return Reply(text, line(str(body.get("model") or self._model)), cut, _usage(body.get("usage"), question, text))

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


def _text(content: Any) -> str:
    """What is said, be it one text or a list of parts; some models put what they think among the latter."""
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        texts = [part.get("text") for part in content if part.get("type") == "text"]
        content = "".join(text for text in texts if isinstance(text, str))
    if content is not None and not isinstance(content, str):
        raise Strange("with something else than text")
    return content or ""


def _usage(used: Any, question: Question, text: str) -> Usage:
    """What the endpoint says was used, else, and where that cannot be, what the characters come to."""
    if isinstance(used, dict):
        given, made = (used.get(name) for name in COUNTS)
        if _counts(given, least=1) and _counts(made, least=1 if text else 0):
            return Usage(prompt_tokens=given, completion_tokens=made)
    return _estimate(question, text)


def _estimate(question: Question, text: str) -> Usage:
    """What the characters come to."""
    asked = sum(len(said) for _, said in question.talk)
    return Usage(prompt_tokens=-(-asked // CHARACTERS_A_TOKEN), completion_tokens=-(-len(text) // CHARACTERS_A_TOKEN))


def _counts(told: Any, least: int) -> TypeGuard[int]:
    return isinstance(told, int) and not isinstance(told, bool) and least <= told <= MOST_COUNTED


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


def _flat(text: object, key: str | None) -> str:
    said = str(text)
    return line(said if key is None else said.replace(key, "<key>")).rstrip(".")
