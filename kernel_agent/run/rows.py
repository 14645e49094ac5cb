"""Records as the rows of a journal: what each is keyed by, what stands in its row, and a run grown from all of them."""

from __future__ import annotations

import gc
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter

from kernel_agent.run import older
from kernel_agent.run.tree import (
    Confirmation,
    Delivered,
    DevicesUsed,
    Diagnosis,
    EvaluationRecord,
    Ideas,
    PoorBuild,
    Recalled,
    Record,
    Run,
    ShownBaselines,
    Unwritten,
)
from kernel_agent.run.types import Baseline, Trial

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

KINDS: Mapping[str, type[Record]] = {
    "ideas": Ideas,
    "trial": Trial,
    "unwritten": Unwritten,
    "judgement": EvaluationRecord,
    "poor_build": PoorBuild,
    "confirmation": Confirmation,
    "delivery": Delivered,
    "diagnosis": Diagnosis,
    "recalled": Recalled,
    "baseline": Baseline,
    "asked": ShownBaselines,
    "devices": DevicesUsed,
}
T = TypeVar("T")
OLDER: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {"ideas": older.ideas}
"""What brings a row of an earlier version into today's form, by kind."""

MAPPED = 1 << 30
"""Bytes of a journal that SQLite reads in place."""


def row_of(record: Record) -> tuple[str, str, str]:
    """A record's kind, its key among those of its kind, and its text."""
    kind = next(name for name, its in KINDS.items() if its is type(record))
    match record:
        case Ideas():
            return kind, str(record.round), text_of(record)
        case DevicesUsed():
            return kind, str(record.number), text_of(record)
        case Trial() | Unwritten():
            return kind, record.id, text_of(record)
        case Recalled():
            return kind, record.run, text_of(record)
        case Baseline():
            return kind, record.name, text_of(record)
        case ShownBaselines():
            return kind, record.place, text_of(record)
        case EvaluationRecord() | PoorBuild() | Confirmation() | Delivered() | Diagnosis():
            return kind, record.source_id, text_of(record)


def reader(kind: type[T]) -> TypeAdapter[T]:
    """What reads a value of this kind; made once, since that takes longer than a hundred readings."""
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


_ADAPTERS: dict[type, TypeAdapter[Any]] = {}


def text_of(value: DataclassInstance) -> str:
    """As JSON that can be read back whatever stands in it: a half character, which none can be, becomes a `?`."""
    return json.dumps(asdict(value), ensure_ascii=False).encode("utf-8", "replace").decode()


def grow(run: Run, rows: sqlite3.Connection) -> None:
    """Record in a run all that stands in the table `records`, in its order. Raises what is wrong with a row."""
    readers = _readers()
    rows.execute(f"PRAGMA mmap_size={MAPPED}")
    with _nothing_collected():
        for kind, body in rows.execute("SELECT kind, body FROM records ORDER BY number"):
            if kind in OLDER:
                run.record(readers[kind].validate_python(OLDER[kind](json.loads(body))))
            else:
                run.record(readers[kind].validate_json(body))


@cache
def _readers() -> dict[str, TypeAdapter[Record]]:
    return {name: TypeAdapter(kind) for name, kind in KINDS.items()}


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """No search for circles: values that all stay have none, and it takes a third of a long journal's time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
