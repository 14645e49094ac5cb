"""The library as the search knows it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal

from kernel_agent.errors import Unavailable
from kernel_agent.interfaces import OnNotice
from rag import Answer, Library, LibraryError, Situation


@dataclass(frozen=True, slots=True)
class IndexedKnowledge:
    """The library as the search knows it, its faults among ours."""

    library: Library

    @property
    def mode(self) -> str:
        return self.library.mode

    def consult(self, situation: Situation) -> Answer:
        try:
            return self.library.consult(situation)
        except LibraryError as error:
            raise Unavailable(f"The library cannot answer: {error}.") from None

    def likeness(self, text: str, others: Sequence[str]) -> list[float]:
        try:
            return self.library.likeness(text, others)
        except LibraryError as error:
            raise Unavailable(f"The library cannot compare: {error}.") from None


@asynccontextmanager
async def open_library(
    mode: Literal["auto", "lexical", "hybrid"], on_notice: OnNotice
) -> AsyncIterator[IndexedKnowledge]:
    """The library, built where it is missing. Raises Unavailable."""
    loop = asyncio.get_running_loop()

    def from_thread(message: str) -> None:
        loop.call_soon_threadsafe(on_notice, message)

    try:
        library = await asyncio.to_thread(Library.open, mode=mode, progress=from_thread)
    except LibraryError as error:
        raise Unavailable(f"The library cannot be opened: {error}.") from None
    with library:
        yield IndexedKnowledge(library)
