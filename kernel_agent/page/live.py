"""The page of runs that go on: a server on this machine, which sends what is new and can end a run.

Every address wants the token of this server's start. Nothing is written but the signal that `stop` sends.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from kernel_agent.errors import KernelAgentError, UsageError
from kernel_agent.page import render, texts
from kernel_agent.page.facts import facts, summary
from kernel_agent.page.seen import Seen, runs_below, see, state
from kernel_agent.run import lock
from kernel_agent.run.history import stamp
from kernel_agent.run.journal import FILE
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


@dataclass(slots=True)
class Watched:
    """What is watched: one run, or the runs below a folder, and what was last seen of each."""

    root: Path
    token: str
    _seen: dict[Path, tuple[object, dict[str, Any]]] = field(default_factory=dict)

    def runs(self) -> list[Path]:
        """The directories of the runs that are shown, the last changed first."""
        return [self.root] if (self.root / FILE).is_file() else list(runs_below(self.root))

    def name(self, directory: Path) -> str:
        """What a run is called in addresses: its path below the root."""
        return directory.relative_to(self.root).as_posix()

    def directory(self, name: str) -> Path:
        """The run of a name. Raises UsageError where none of those shown has it."""
        for directory in self.runs():
            if self.name(directory) == name:
                return directory
        raise UsageError(f"There is no run {name} in {self.root}.")

    def facts(self, directory: Path) -> dict[str, Any]:
        """Its facts as they stand now; what has not changed is not read again."""
        return self._known(directory, lambda: facts(see(directory)))

    def row(self, directory: Path) -> dict[str, Any]:
        """What the list says of a run; of one that cannot be read, why."""
        here = {"run": self.name(directory), "state": state(directory)}
        try:
            return here | self._known(directory / "row", lambda: summary(see(directory)), directory)
        except KernelAgentError as fault:
            return here | {"fault": str(fault)}

    def _known(self, key: Path, make: Callable[[], dict[str, Any]], directory: Path | None = None) -> dict[str, Any]:
        now = mark(directory or key)
        if key not in self._seen or self._seen[key][0] != now:
            self._seen[key] = now, make()
        return self._seen[key][1]


def mark(directory: Path) -> tuple[object, ...]:
    """What changes when there is something new to show of a run."""
    return (*stamp(directory), state(directory))


def app(root: Path, token: str, hosts: list[str] | None = None) -> Starlette:
    """The server of a run's directory or of a folder of runs. `hosts` are the names by which it may be asked."""
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
        directory = watched.directory(request.query_params.get("run", ""))
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
        directory = watched.directory(request.query_params.get("run", ""))
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
        name = request.query_params.get("run")
        if name is not None:
            watched.directory(name)
        stream = _of_runs(watched) if name is None else _of_one(watched, watched.directory(name))
        return StreamingResponse(stream, media_type="text/event-stream")

    return answer


async def _of_one(watched: Watched, directory: Path) -> AsyncIterator[str]:
    """A run's facts whenever something is new."""
    before: object = None
    while True:
        now = await asyncio.to_thread(mark, directory)
        if now != before:
            before = now
            try:
                yield event("facts", await asyncio.to_thread(watched.facts, directory))
            except KernelAgentError as fault:
                yield event("fault", str(fault))
        async for beat in _pause(lambda: mark(directory), before):
            yield beat


async def _of_runs(watched: Watched) -> AsyncIterator[str]:
    """The list of runs whenever one is new or has something new."""
    before: object = None
    while True:
        rows = await asyncio.to_thread(lambda: [watched.row(directory) for directory in watched.runs()])
        if rows != before:
            before = rows
            yield event("runs", rows)
        marks = await asyncio.to_thread(lambda: [mark(one) for one in watched.runs()])
        async for beat in _pause(lambda: [mark(one) for one in watched.runs()], marks):
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
        directory = watched.directory(request.query_params.get("run", ""))
        await asyncio.to_thread(lock.stop, directory)
        return PlainTextResponse(f"The run in {directory} is asked to stop; what is recorded stays.")

    return answer
