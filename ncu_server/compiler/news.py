"""What a compiler says of a kernel that is worth a change before it runs: spilled registers, serialized wgmma."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ncu_server.compiler import nvcc

SPILLED_BYTES = 64
"""Of a thread's stores and loads from which on spills are news: a few stand outside of loops."""

SERIALIZED = re.compile(r"^.*wgmma\.mma_async instructions are serialized.*$", re.MULTILINE)
MOST, LONGEST = 6, 400


def bad_news(words: str) -> list[str]:
    """A sentence for each kernel that spills SPILLED_BYTES or more, and each remark on serialized wgmma, at most MOST.

    `words` are those of nvcc with -Xptxas=-v.
    """
    return list(dict.fromkeys([*_serialized(words), *_spills(words)]))[:MOST]


def _serialized(words: str) -> Iterator[str]:
    yield from (found[0].strip()[:LONGEST] for found in SERIALIZED.finditer(words))


def _spills(words: str) -> Iterator[str]:
    for kernel in nvcc.resources(words):
        stored, loaded = kernel.spill_store_bytes or 0, kernel.spill_load_bytes or 0
        if stored + loaded >= SPILLED_BYTES:
            yield (
                f"{kernel.name[:LONGEST]}: {kernel.registers} registers a thread and {stored} bytes of spill stores, "
                f"{loaded} bytes of spill loads"
            )
