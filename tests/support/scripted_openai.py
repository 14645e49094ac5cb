"""An OpenAI-protocol HTTP server on loopback whose replies and faults are scripted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Self


@dataclass(frozen=True)
class Say:
    """A completion; `finish="length"` is how an endpoint says that it cut the reply off."""

    text: str
    finish: str = "stop"


@dataclass(frozen=True)
class Refuse:
    """An error reply in OpenAI's form."""

    status: int
    message: str = "scripted"
    headers: Mapping[str, str] = field(default_factory=dict)
    code: str | None = None
    param: str | None = None


@dataclass(frozen=True)
class Raw:
    """A reply of 200 with this body, whatever it is."""

    body: str
    kind: str = "application/json"


@dataclass(frozen=True)
class Drop:
    """The connection is cut in the middle of the body."""


@dataclass(frozen=True)
class Whole:
    """A completion as one JSON object though a stream was asked for, with or without the tokens used."""

    text: str
    counted: bool = True


@dataclass(frozen=True)
class Events:
    """A stream of just these events, which ends without a `[DONE]`; a pause before each."""

    rows: tuple[str, ...]
    every_s: float = 0.0


@dataclass(frozen=True)
class Stall:
    """No reply until the client goes away."""


@dataclass(frozen=True)
class Later:
    """The step, once something has happened."""

    step: Say | Refuse
    when: asyncio.Event


Step = Say | Refuse | Raw | Drop | Whole | Events | Stall | Later


class ScriptedOpenAI:
    """Serves steps in order, or by a function of the request's body; keeps what it was asked.

    `waiting` holds how many requests are open, `peak` the most there ever were; with `gate`, none is answered before
    that many are open.
    """

    def __init__(self, script: Iterable[Step] | Callable[[dict[str, Any]], Step], gate: int = 1) -> None:
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.waiting = 0
        self.peak = 0
        self._gate = gate
        self._changed = asyncio.Condition()
        self._steps = iter(script) if not callable(script) else None
        self._choose = script if callable(script) else None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
            headers = dict(row.split(": ", 1) for row in head[1:] if row)
            body = json.loads(await reader.readexactly(int(headers["content-length"])))
            self.requests.append(body)
            self.keys.append(headers.get("authorization", ""))
            await self._opened()
            step = self._choose(body) if self._choose else next(self._steps or iter(()), Refuse(418, "script is over"))
            await self._perform(step, body, reader, writer)
        finally:
            self.waiting -= 1
            writer.close()

    async def _opened(self) -> None:
        async with self._changed:
            self.waiting += 1
            self.peak = max(self.peak, self.waiting)
            self._changed.notify_all()
            await self._changed.wait_for(lambda: self.peak >= self._gate)

    async def _perform(
        self, step: Step, body: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if isinstance(step, Later):
            await step.when.wait()
            step = step.step
        match step:
            case Stall():
                await reader.read()
            case Drop():
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 999\r\n\r\n{")
            case Raw(text, kind):
                writer.write(_response(200, text, {"content-type": kind}))
            case Refuse(status, message, headers, code, param):
                error = {"error": {"message": message, "type": "scripted", "param": param, "code": code}}
                writer.write(_response(status, json.dumps(error), {"content-type": "application/json", **headers}))
            case Events(rows, every_s):
                writer.write(_STREAM)
                for row in rows:
                    await asyncio.sleep(every_s)
                    writer.write(f"data: {row}\n\n".encode())
                    await writer.drain()
            case Whole(text, counted):
                done = _completion(body["model"], text, "stop")
                reply = json.dumps(done if counted else {**done, "usage": None})
                writer.write(_response(200, reply, {"content-type": "application/json"}))
            case Say(text, finish) if body.get("stream"):
                rows = [json.dumps(row) for row in chunks(body["model"], text, finish)]
                writer.write(_STREAM + "".join(f"data: {row}\n\n" for row in [*rows, "[DONE]"]).encode())
            case Say(text, finish):
                reply = json.dumps(_completion(body["model"], text, finish))
                writer.write(_response(200, reply, {"content-type": "application/json"}))
        if not isinstance(step, Stall):
            await writer.drain()


def _response(status: int, body: str, headers: Mapping[str, str]) -> bytes:
    rows = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        f"content-length: {len(body.encode())}",
        "connection: close",
    ]
    rows += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(rows) + "\r\n\r\n" + body).encode()


_STREAM = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/event-stream\r\n\r\n"


def chunks(model: str, text: str, finish: str | None = "stop") -> list[dict[str, Any]]:
    """A completion in three pieces and its usage."""
    third = len(text) // 3
    base = {"id": "scripted", "object": "chat.completion.chunk", "created": 0, "model": model}
    parts = ({"role": "assistant", "content": text[:third]}, {"content": text[third:]}, {})
    rows = [{**base, "choices": [{"index": 0, "delta": part, "finish_reason": None}]} for part in parts]
    rows[-1]["choices"][0]["finish_reason"] = finish
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    return [*rows, {**base, "choices": [], "usage": usage}]


def _completion(model: str, text: str, finish: str) -> dict[str, Any]:
    return {
        "id": "scripted",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
    }
