"""What a run takes from the experience of earlier ones when it begins, and what it leaves to later ones when it ends.

What is taken is recorded in the journal, so that a resumed run asks its model what it asked before, whatever other runs
have measured since; a cassette carries it too. No fault of the store ever stops a run.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from kernel_agent.interfaces import OnNotice
from kernel_agent.knowledge.extract import experiences_for_problem, learnt, question
from kernel_agent.llm import cassette
from kernel_agent.run.journal import Journal
from kernel_agent.run.tree import Recalled, Run
from kernel_agent.settings import Settings
from rag import Library, LibraryError
from rag.experience.ledger import Experience, Ledger, default_ledger

RECALLED = 40
"""Experiences that a run takes along for each bottleneck, as any may turn out to be that of a brief."""


@asynccontextmanager
async def remembered(
    run: Run, journal: Journal, settings: Settings, provider: str, library: Library, on_notice: OnNotice
) -> AsyncIterator[None]:
    """Recall before the run is played, and keep what it has learnt however it ends; its vectors where it ends well.

    A run that plays a recording has the recording's experience, and leaves none. Templates are told nothing.
    """
    played, loop = provider == "replay", asyncio.get_running_loop()

    def from_thread(message: str) -> None:
        loop.call_soon_threadsafe(on_notice, message)

    if run.recalled is None and (settings.experience or played):
        if played:
            experiences = cassette.read(settings.cassette).experiences if settings.cassette else ()
        elif provider == "templates":
            experiences = ()
        else:
            experiences = await asyncio.to_thread(_recall, run, library, from_thread)
        name = f"{journal.directory.resolve().name[:100]}-{secrets.token_hex(4)}"
        record = Recalled(name, f"{datetime.now(UTC):%Y-%m-%d}", experiences)
        journal.append(record)
        run.record(record)
    try:
        yield
    finally:
        if settings.experience and not played:
            _keep(run, on_notice)
    if settings.experience and not played:
        await asyncio.to_thread(_learn, run, library, from_thread)


def _recall(run: Run, library: Library, on_notice: OnNotice) -> tuple[Experience, ...]:
    try:
        held = Ledger(default_ledger()).read()
    except LibraryError as error:
        on_notice(f"nothing is recalled of earlier runs: {error}")
        return ()
    if held.later or held.damaged:
        on_notice(f"of the experience {held.later} records are of a later version and {held.damaged} cannot be read")
    known = experiences_for_problem(run, held.experiences)
    if not known:
        return ()
    found = library.recall(question(run), known)
    ranked = "words and vectors" if found.mode == "hybrid" else f"words alone ({found.reason})"
    on_notice(
        f"experience: {len(known)} of {len(held.experiences)} earlier results fit this problem, ranked by {ranked}"
    )
    return tuple(_taken(found.experiences))


def _taken(ranked: Iterable[Experience]) -> Iterator[Experience]:
    counts: Counter[str] = Counter()
    for one in ranked:
        counts[one.bottleneck] += 1
        if counts[one.bottleneck] <= RECALLED:
            yield one


def _keep(run: Run, on_notice: OnNotice) -> None:
    experiences = learnt(run)
    if run.recalled is None or not experiences:
        return
    try:
        Ledger(default_ledger()).replace(run.recalled.run, experiences)
    except LibraryError as error:
        on_notice(f"what was measured is not remembered for later runs: {error}")


def _learn(run: Run, library: Library, on_notice: OnNotice) -> None:
    try:
        library.learn(learnt(run))
    except LibraryError as error:
        on_notice(f"experience is found by its words until its vectors can be made: {error}")
