"""One question to a model: looked up among the recorded calls, else asked, recorded and read."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Protocol, Self, TypeVar

from kernel_agent.errors import ProviderError
from kernel_agent.types import JSON, digest

T = TypeVar("T")
Speaker = Literal["system", "user", "assistant"]
Talk = tuple[tuple[Speaker, str], ...]
"""A conversation so far: pairs of who speaks and what is said. The last one is the question."""

Role = Literal["ideas", "code"]
"""What a model is asked for; each may have a model of its own."""

COMPLAINT = "That reply cannot be used: {fault}. Answer the same question again, whole, in the form asked for."


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
class Question:
    """What is said, for which role, and where in the run: `place` is the same on every machine that plays the run.

    `schema` is the JSON schema of the reply, where it is JSON.
    """

    talk: Talk
    role: Role | None = None
    place: str = ""
    schema: JSON | None = None

    @property
    def key(self) -> str:
        """The hash a call is recorded by: all that is said, and not who is asked, so any provider can replay it."""
        return digest(*(part for turn in self.talk for part in turn))


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back. `cut` says that the endpoint stopped at its token limit."""

    text: str
    model: str
    cut: bool = False
    usage: Usage = Usage()


class Malformed(Exception):  # noqa: N818
    """A reply that cannot be used; its text is quoted back to the model, once."""


class NotRecorded(ProviderError):  # noqa: N818
    """A recorded run is played again, and this question was not asked in it."""


class Calls(Protocol):
    """Where calls are kept: the journal. A key is written once; `usage` is what the call cost, as JSON values."""

    def call(self, key: str) -> str | None: ...
    def record_call(self, key: str, request_json: str, reply: str, usage: Mapping[str, Any]) -> None: ...


class Answers(Protocol):
    """Whoever answers: an endpoint, a person with files, or a recording.

    `remedy` is what to do where the replies are of no use.
    """

    remedy: str

    async def answer(self, question: Question) -> Reply: ...
    async def close(self) -> None: ...


class Model:
    """Asks, and keeps every answer in `calls`; `usage` grows with what went out."""

    def __init__(self, answers: Answers, calls: Calls) -> None:
        self.usage = Usage()
        self._answers = answers
        self._calls = calls
        self._places: Counter[str] = Counter()

    async def ask(
        self,
        talk: Talk,
        read: Callable[[str], T],
        role: Role | None = None,
        place: str = "",
        schema: JSON | None = None,
    ) -> T:
        """The reply to `talk` as `read` understands it; where `read` raises Malformed, asked once more quoting why.

        Raises ProviderError when the endpoint refuses or the second reply cannot be used either; that one is not
        recorded, so that a resumed run asks again.
        """
        self._places[place] += 1
        question = Question(talk, role, f"{place}, no. {self._places[place]}" if place else "", schema)
        text = self._calls.call(question.key)
        if text is None:
            reply = await self._asked(question)
            self._keep(question, reply)
            text = reply.text
        try:
            return read(text)
        except Malformed as fault:
            complained = (*talk, ("assistant", text or "(nothing)"), ("user", COMPLAINT.format(fault=fault)))
        question = replace(question, talk=complained, place=question.place and f"{question.place}, again")
        known = self._calls.call(question.key)
        reply = await self._asked(question) if known is None else Reply(known, "the recorded model")
        try:
            value = read(reply.text)
        except Malformed as fault:
            cut = ", and was cut off at its token limit" if reply.cut else ""
            raise ProviderError(
                f"{reply.model} answered twice in a form that cannot be used ({fault}{cut}): "
                f"{self._answers.remedy}, then resume the run."
            ) from fault
        if known is None:
            self._keep(question, reply)
        return value

    async def _asked(self, question: Question) -> Reply:
        started = time.monotonic()
        reply = await self._answers.answer(question)
        spent = replace(reply.usage, calls=1, seconds=time.monotonic() - started)
        self.usage += spent
        text = reply.text.encode("utf-8", "replace").decode()  # JSON can hold half characters, storage cannot
        return replace(reply, text=text, usage=spent)

    def _keep(self, question: Question, reply: Reply) -> None:
        about = {"model": reply.model, "cut": reply.cut, "role": question.role, "place": question.place}
        self._calls.record_call(question.key, json.dumps(question.talk), reply.text, {**about, **asdict(reply.usage)})

    async def close(self) -> None:
        await self._answers.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
