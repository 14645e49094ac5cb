"""Folders that one call works in."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path


@asynccontextmanager
async def workplace(work: Path) -> AsyncIterator[Path]:
    """A folder of one call, gone with it."""
    place = Path(tempfile.mkdtemp(prefix="call-", dir=work))
    try:
        yield place
    finally:
        await asyncio.to_thread(shutil.rmtree, place, True)
