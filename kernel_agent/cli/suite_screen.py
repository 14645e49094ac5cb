"""A suite for people: a live table of what runs where on a terminal, a line for each problem elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kernel_agent.page.words import times
from kernel_agent.suite.board import Board, Lane
from kernel_agent.suite.play import Began, Ended, Play
from kernel_agent.suite.types import State
from kernel_agent.text import line as one_line


class Display(Protocol):
    """What shows a suite."""

    def show(self, play: Play) -> None:
        """The suite that is played from now on."""

    def watch(self, event: Began | Ended, board: Board) -> None:
        """A problem begins or has ended."""

    def notice(self, message: str) -> None:
        """A sentence that is no problem's own."""


def clock(seconds: float) -> str:
    """A length of time in the largest two units that it has."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def words(event: Began | Ended, board: Board) -> str:
    """The line of a problem that begins or has ended."""
    if isinstance(event, Began):
        if event.grant is None or not event.grant.judged:
            return f"{event.problem} begins{_granted(event)}"
        return f"{event.problem} goes on{_granted(event)}: {event.grant.why}"
    outcome, history = event.outcome, event.history
    if outcome.state is State.FAILED:
        return f"{outcome.problem} failed: {one_line(outcome.reason or '', 300)}"
    if outcome.state is State.WAITING:
        return f"{outcome.problem} waits: {one_line(outcome.reason or 'nothing is left for it', 300)}"
    reached = f", {history.reached:.0%} of the limit" if history.reached else ""
    spent = history.spent
    cost = f", ${spent.dollars:.2f}" if spent.dollars else ""
    best = f"{history.best:.2f}x at best{reached}" if history.best > 1 else "nothing faster"
    return (
        f"{outcome.problem} is played: {best}, {history.judged} candidates in "
        f"{clock((spent.minutes or 0.0) * 60)}{cost}; {counts(board)}"
    )


def _granted(event: Began) -> str:
    grant = event.grant
    if grant is None:
        return ""
    amounts = (
        f"{grant.minutes:.3g} minutes" if grant.minutes is not None else "",
        f"${grant.dollars:.3g}" if grant.dollars is not None else "",
        f"{grant.tokens:,} tokens" if grant.tokens is not None else "",
        f"{grant.rounds} more round" if grant.rounds else "",
    )
    known = ", ".join(filter(None, amounts))
    return f" with {known}" if known else ""


def counts(board: Board) -> str:
    """How many problems are where, and when all will be played."""
    states = board.counts
    failed = f", {states[State.FAILED]} failed" if states[State.FAILED] else ""
    aside = f", {len(board.set_aside)} set aside" if board.set_aside else ""
    eta = board.remaining_s(time.monotonic())
    left = f", about {clock(eta)} left" if eta else ""
    rest = f"{len(board.lanes)} under way, {board.waiting} waiting"
    return f"{states[State.DONE]} of {board.total} played{failed}{aside}, {rest}{left}"


@dataclass(slots=True)
class SuiteLines:
    """Writes a line for each problem that begins or ends."""

    write: Callable[[str], None]

    def show(self, play: Play) -> None:
        self.write(counts(play.board))

    def watch(self, event: Began | Ended, board: Board) -> None:
        self.write(words(event, board))

    def notice(self, message: str) -> None:
        self.write(message)


@dataclass(slots=True)
class SuiteScreen:
    """A table for a terminal: what runs where, the best so far, budget and time left, below the lines so far."""

    console: Console
    _live: Live = field(init=False)
    _play: Play | None = None

    def __post_init__(self) -> None:
        self._live = Live(console=self.console, get_renderable=self.picture, transient=True, refresh_per_second=2)

    def __enter__(self) -> SuiteScreen:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, play: Play) -> None:
        self._play = play

    def watch(self, event: Began | Ended, board: Board) -> None:
        if isinstance(event, Began):
            return
        state = event.outcome.state
        style = "red" if state is State.FAILED else "green" if event.history.best > 1 else "default"
        self.console.print(
            Text(words(event, board).partition(";")[0] if state is State.DONE else words(event, board), style)
        )

    def notice(self, message: str) -> None:
        self.console.print(Text(message, "dim"))

    def picture(self) -> RenderableType:
        """The table as it stands; the display draws it twice a second."""
        if self._play is None:
            return Text("starting", "bold")
        return Group(Text(), Text(counts(self._play.board), "bold"), lanes(self._play.board), *self._budget(self._play))

    def _budget(self, play: Play) -> Iterator[Text]:
        if used := ", ".join(play.used()):
            yield Text(f"used: {used}", "dim")


def lanes(board: Board) -> Table:
    """What is under way: where, for how long, and what it has come to."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("problem", "on", "doing", "best so far", "of the limit", "candidates", "minutes"):
        table.add_column(name, no_wrap=True, overflow="ellipsis", ratio=2 if name in ("problem", "doing") else None)
    now = time.monotonic()
    for lane in list(board.lanes.values()):
        table.add_row(*_cells(lane, now))
    return table


def _cells(lane: Lane, now: float) -> tuple[str, ...]:
    granted = f" of {lane.granted:.3g}" if lane.granted is not None else ""
    return (
        lane.problem,
        lane.device,
        lane.doing,
        times(lane.best) if lane.best else "-",
        f"{lane.reached:.0%}" if lane.reached else "-",
        str(lane.judged),
        f"{(now - lane.since) / 60:.1f}{granted}",
    )
