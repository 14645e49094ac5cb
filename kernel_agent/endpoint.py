"""An OpenAI-compatible HTTP endpoint."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, NoReturn

from kernel_agent.errors import ProviderError
from kernel_agent.llm import Question, Reply, Talk, Usage

if TYPE_CHECKING:
    from openai import APIStatusError


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

    remedy = "choose another model with --model-name"

    async def answer(self, question: Question) -> Reply:
        async with self._slots:
            tries = 0
            while True:
                try:
                    return await self._once(question.talk)
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
