"""The server: it sends what is new of runs and suites, and can end one.

Every address wants the token of this server's start. Nothing is written but the signal that `stop` sends.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from kernel_agent.errors import KernelAgentError, UsageError
from kernel_agent.live.watched import Watched, mark
from kernel_agent.page import render, texts
from kernel_agent.page.seen import Seen, see
from kernel_agent.run import lock
from rag import Library, LibraryError

POLL_S = 0.5
"""Seconds between two looks at a journal."""

QUIET_S = 15.0
"""Seconds after which a stream says that it is still there."""

GUARDS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
Answer = Callable[[Request], Awaitable[Response]]


def app(root: Path, token: str, hosts: list[str] | None = None) -> Starlette:
    """The server of a run, of a suite, or of a folder of them. `hosts` are the names by which it may be asked."""
    watched = Watched(root, token)
    made = {
        "/": _page(watched),
        "/facts": _facts(watched),
        "/texts": _texts(watched),
        "/events": _events(watched),
    }
    routes = [Route(path, _guarded(watched, answer), methods=["GET"]) for path, answer in made.items()]
    routes.append(Route("/stop", _guarded(watched, _stop(watched)), methods=["POST"]))
    allowed = hosts or ["localhost", "127.0.0.1", "[::1]", "::1"]
    return Starlette(routes=routes, middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=allowed)])


def _guarded(watched: Watched, answer: Answer) -> Answer:
    """Only who has the token is answered; our faults become sentences."""

    async def guarded(request: Request) -> Response:
        given = request.query_params.get("token", "")
        if not hmac.compare_digest(given.encode(), watched.token.encode()):
            response: Response = PlainTextResponse("Open the whole address that `watch` has printed.", 403)
        else:
            try:
                response = await answer(request)
            except UsageError as fault:
                response = PlainTextResponse(str(fault), 404)
            except KernelAgentError as fault:
                response = PlainTextResponse(str(fault), 503)
        response.headers.update(GUARDS)
        return response

    return guarded


def _page(watched: Watched) -> Answer:
    async def answer(request: Request) -> Response:
        return HTMLResponse(render.live(), headers={"Content-Security-Policy": render.policy()})

    return answer


def _facts(watched: Watched) -> Answer:
    async def answer(request: Request) -> Response:
        if (name := request.query_params.get("suite")) is not None:
            return JSONResponse(await asyncio.to_thread(watched.suite_facts, watched.suite(name)))
        directory = watched.run(request.query_params.get("run", ""))
        return JSONResponse(await asyncio.to_thread(watched.facts, directory))

    return answer


def _texts(watched: Watched) -> Answer:
    library = _LazyLibrary()

    def found(directory: Path, name: str) -> dict[str, Any]:
        seen: Seen = see(directory)
        if name not in seen.run.trials:
            raise UsageError(f"There is no trial {name} in {directory}.")
        return texts.one(seen.run, seen.run.trials[name], library)

    async def answer(request: Request) -> Response:
        directory = watched.run(request.query_params.get("run", ""))
        return JSONResponse(await asyncio.to_thread(found, directory, request.query_params.get("trial", "")))

    return answer


class _LazyLibrary:
    """The library, opened when the first passage is asked for."""

    def __init__(self) -> None:
        self._library: Library | None = None
        self._tried = False

    def __call__(self, names: Any) -> tuple[Any, ...]:
        try:
            if not self._tried:
                self._tried = True
                self._library = Library.open(mode="lexical")
            return self._library.passages(names) if self._library else ()
        except LibraryError:
            return ()


def _events(watched: Watched) -> Answer:
    async def answer(request: Request) -> Response:
        run, suite = request.query_params.get("run"), request.query_params.get("suite")
        if run is not None:
            one = watched.run(run)
            stream = _stream("facts", lambda: watched.facts(one), lambda: mark(one))
        elif suite is not None:
            many = watched.suite(suite)
            stream = _stream("suite", lambda: watched.suite_facts(many), lambda: watched.mark(many))
        else:
            stream = _stream("list", watched.rows, watched.marks)
        return StreamingResponse(stream, media_type="text/event-stream")

    return answer


async def _stream(name: str, value: Callable[[], object], now: Callable[[], object]) -> AsyncIterator[str]:
    """An event with the value whenever something is new, which `now` then says otherwise."""
    while True:
        before = await asyncio.to_thread(now)
        try:
            yield event(name, await asyncio.to_thread(value))
        except KernelAgentError as fault:
            yield event("fault", str(fault))
        async for beat in _pause(now, before):
            yield beat


async def _pause(now: Callable[[], object], before: object) -> AsyncIterator[str]:
    """Waits until something is no more as it was; a comment now and then shows a connection that is gone."""
    waited = 0.0
    while True:
        await asyncio.sleep(POLL_S)
        waited += POLL_S
        if await asyncio.to_thread(now) != before:
            return
        if waited >= QUIET_S:
            waited = 0.0
            yield ": here\n\n"


def event(name: str, value: object) -> str:
    """One server-sent event with a JSON value, which has no line of its own to end it."""
    return f"event: {name}\ndata: {json.dumps(value)}\n\n"


def _stop(watched: Watched) -> Answer:
    async def answer(request: Request) -> Response:
        if not hmac.compare_digest(request.headers.get("x-token", "").encode(), watched.token.encode()):
            return PlainTextResponse("Stopping wants the token in the header X-Token too.", 403)
        suite = request.query_params.get("suite")
        directory = watched.run(request.query_params.get("run", "")) if suite is None else watched.suite(suite)
        await asyncio.to_thread(lock.stop, directory)
        return PlainTextResponse(f"The process that plays {directory} is asked to stop; what is recorded stays.")

    return answer
