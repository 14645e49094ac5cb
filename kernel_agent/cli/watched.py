"""A command that may be stopped: where its run is kept, and how it ends on Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import sys
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from kernel_agent.run.events import Event, Observer

INTERRUPTED = 130
GRACE_S = 5.0
"""Seconds a run has to end its children after Ctrl-C."""


class Watched:
    """Passes events on and remembers where the run is kept."""

    def __init__(self) -> None:
        self.directory: Path | None = None
        self.suite: Path | None = None
        self.retrieval: str | None = None
        self.spent: str | None = None

    def to(self, observer: Observer) -> Observer:
        from kernel_agent.run.events import RunOpened, RunStarted, Stopped

        def observe(event: Event) -> None:
            if isinstance(event, RunOpened):
                self.directory = event.directory
            if isinstance(event, RunStarted):
                self.retrieval = event.retrieval_mode
            if isinstance(event, Stopped) and event.spent:
                self.spent = event.reason
            observer(event)

        return observe

    def going_on(self) -> str | None:
        """How to go on with the run or the suite, where there is something to go on with."""
        if self.suite is not None:
            return f"go on with: python -m kernel_agent suite resume {shlex.quote(str(self.suite))}"
        if self.directory is None:
            return None
        from kernel_agent.run.journal import begun

        if not begun(self.directory):
            return None
        return f"go on with: python -m kernel_agent resume {shlex.quote(str(self.directory))}"

    def stopped(self) -> str:
        """The last word of a run that was stopped."""
        on = self.going_on()
        return f"stopped; {on}" if on else "stopped"


def say(text: str) -> None:
    with contextlib.suppress(OSError):  # the terminal may be gone
        print(text, file=sys.stderr, flush=True)


def until_done(work: Coroutine[Any, Any, Any], watched: Watched) -> Any:
    """Run the coroutine. The first Ctrl-C (SIGTERM, SIGHUP) cancels it, a second one ends the process at once.

    Where cancelling takes longer than GRACE_S the process ends too: the server's child sees its pipe close and goes.
    """

    async def cancellable() -> Any:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None, "this coroutine runs as a task"
        calls = 0

        def stop(*_: object) -> None:
            nonlocal calls
            calls += 1
            if calls > 1:
                end()
            say("\nstopping; Ctrl-C again to stop at once")
            late.start()
            loop.call_soon_threadsafe(task.cancel)

        for number in before:
            signal.signal(number, stop)
        return await work

    def end() -> NoReturn:
        say(watched.stopped())
        os._exit(INTERRUPTED)

    late = threading.Timer(GRACE_S, end)
    late.daemon = True
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    if before[signal.SIGHUP] is signal.SIG_IGN:  # nohup
        del before[signal.SIGHUP]
    try:
        return asyncio.run(cancellable())
    finally:
        late.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)
