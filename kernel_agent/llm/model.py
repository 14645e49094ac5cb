"""One question to a model: looked up among the recorded calls, else asked, recorded and read."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Protocol, Self, TypeVar

from kernel_agent.errors import ProviderError, Unusable
from kernel_agent.interfaces import OnNotice, ignore
from kernel_agent.llm.call_site import CallSite
from kernel_agent.run.types import JSON, digest

T = TypeVar("T")
Speaker = Literal["system", "user", "assistant"]
Talk = tuple[tuple[Speaker, str], ...]
"""A conversation so far: pairs of who speaks and what is said. The last one is the question."""

Role = Literal["ideas", "code", "repair", "helper", "escalation"]
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

    `schema` is the JSON schema of the reply, where it is JSON; `parts` are the prompt's characters by what they are.
    """

    talk: Talk
    role: Role | None = None
    place: CallSite | None = None
    schema: JSON | None = None
    parts: Mapping[str, int] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The hash a call is recorded by: all that is said, and not who is asked, so any provider can replay it."""
        return digest(*(part for turn in self.talk for part in turn))


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back. `cut` says that the endpoint stopped at its token limit.

    `model` is the name that the endpoint gives itself, `arm` that of an ensemble's model as the settings have it.
    """

    text: str
    model: str
    cut: bool = False
    usage: Usage = Usage()
    arm: str | None = None


class Malformed(Exception):  # noqa: N818
    """A reply that cannot be used; its text is quoted back to the model, once."""


class NotRecorded(ProviderError):  # noqa: N818
    """A recorded run is played again, and this question was not asked in it."""


class BrokenOff(ProviderError):  # noqa: N818
    """No whole reply came, but parts of one; `lost` is about what they cost."""

    def __init__(self, sentence: str, lost: Usage) -> None:
        self.lost = lost
        super().__init__(sentence)


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
    """Asks, and keeps every answer in `calls`; `usage` grows with what went out.

    Where answers are paid for, at most `at_once` calls are under way. After a refusal no other goes out, and those that
    are under way are not broken off: leaving after a fault waits for their replies, which are kept. None of this where
    it is None.
    """

    def __init__(
        self,
        answers: Answers,
        calls: Calls,
        at_once: int | None = None,
        on_notice: OnNotice = ignore,
    ) -> None:
        self.usage = Usage()
        self._answers = answers
        self._calls = calls
        self._places: Counter[CallSite] = Counter()
        self._slots = asyncio.Semaphore(at_once) if at_once else None
        self._under_way: set[asyncio.Task[Reply]] = set()
        self._refusal: ProviderError | None = None
        self._notice = on_notice

    async def ask(
        self,
        talk: Talk,
        read: Callable[[str], T],
        role: Role | None = None,
        place: CallSite | None = None,
        schema: JSON | None = None,
        parts: Mapping[str, int] | None = None,
    ) -> T:
        """The reply to `talk` as `read` understands it; where `read` raises Malformed, asked once more quoting why.

        Raises Unusable when the second reply cannot be used either (who asks again later is answered anew), another
        ProviderError when the endpoint refuses.
        """
        if place is not None:
            self._places[place] += 1
            place = place.numbered(self._places[place])
        question = Question(talk, role, place, schema, parts or {})
        text = self._calls.call(question.key)
        if text is None:
            text = (await self._asked(question)).text
        try:
            return read(text)
        except Malformed as fault:
            complained = (*talk, ("assistant", text or "(nothing)"), ("user", COMPLAINT.format(fault=fault)))
        question = replace(question, talk=complained, place=place and replace(place, again=True))
        with suppress(Malformed):
            if (known := self._calls.call(question.key)) is not None:
                return read(known)
        reply = await self._asked(question)
        try:
            return read(reply.text)
        except Malformed as fault:
            cut = ", and was cut off at its token limit" if reply.cut else ""
            raise Unusable(
                f"{reply.model} answered twice in a form that cannot be used ({fault}{cut})", self._answers.remedy
            ) from fault

    async def _asked(self, question: Question) -> Reply:
        if self._slots is None:
            return await self._answered(question)
        async with self._slots:
            if self._refusal:  # of the call that had this slot before
                raise self._refusal
            call = asyncio.ensure_future(self._answered(question))
            self._under_way.add(call)
            call.add_done_callback(self._ended)
            return await asyncio.shield(call)

    def _ended(self, call: asyncio.Task[Reply]) -> None:
        """A call may fail after whoever asked was cancelled: then nobody else takes its exception."""
        self._under_way.discard(call)
        fault = None if call.cancelled() else call.exception()
        if isinstance(fault, ProviderError):
            self._refusal = fault

    async def _answered(self, question: Question) -> Reply:
        started = time.monotonic()
        reply = await self._answers.answer(question)
        spent = replace(reply.usage, calls=1, seconds=time.monotonic() - started)
        self.usage += spent
        text = reply.text.encode("utf-8", "replace").decode()  # JSON can hold half characters, storage cannot
        reply = replace(reply, text=text, usage=spent)
        about: dict[str, Any] = {"model": reply.model, "arm": reply.arm, "cut": reply.cut}
        about |= {"parts": dict(question.parts)} if question.parts else {}
        about |= {"role": question.role, "place": question.place and question.place.row()}
        self._calls.record_call(question.key, json.dumps(question.talk), reply.text, {**about, **asdict(reply.usage)})
        return reply

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, at: object) -> None:
        """Whoever stops the run, or has used its time, waits for nothing."""
        left = set(self._under_way)
        if left and isinstance(error, Exception):
            self._notice(f"{error} Model calls under way: {len(left)}; their replies are paid for, so they are kept.")
        elif left:
            for call in left:
                call.cancel()
        try:
            await asyncio.gather(*left, return_exceptions=True)
        finally:
            await self._answers.close()
