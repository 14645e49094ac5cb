"""A retrieved passage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Passage:
    """One passage of one page: where it stands, what it says, and how each channel scored it."""

    id: str
    page: str
    title: str
    heading: str
    text: str
    source: str
    archs: tuple[str, ...] = ()
    scores: Mapping[str, float] = field(default_factory=dict)
