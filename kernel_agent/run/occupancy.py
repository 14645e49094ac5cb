"""What a device did with its time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """Seconds in which a device was busy, and in which it was not, by what it waited for: a call's `building` or
    `preparing`, its `waiting` for somebody else's call, or the `proposer`, where no call was under way."""

    card: str
    uuid: str | None
    host: str | None
    busy_s: float
    waited_s: Mapping[str, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return self.busy_s + sum(self.waited_s.values())

    @property
    def busy_share(self) -> float:
        return self.busy_s / self.seconds if self.seconds else 0.0
