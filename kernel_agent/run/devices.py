"""What each device did in a run: written down after each round, and summed over sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernel_agent.run.events import DevicesSeen, Observer
from kernel_agent.run.journal import Journal
from kernel_agent.run.occupancy import DeviceTime
from kernel_agent.run.tree import DevicesUsed, Run
from kernel_agent.run.types import Device

Key = tuple[str, str | None, str | None]


def key(device: DeviceTime) -> Key:
    """Which device it is."""
    return device.card, device.uuid, device.host


def total(rows: Iterable[DeviceTime]) -> tuple[DeviceTime, ...]:
    """One row for each device."""
    found: dict[Key, DeviceTime] = {}
    for row in rows:
        found[key(row)] = _plus(found[key(row)], row, 1) if key(row) in found else row
    return tuple(found.values())


def since(now: Sequence[DeviceTime], before: Sequence[DeviceTime]) -> tuple[DeviceTime, ...]:
    """What devices did between two readings of one pool, which has them in one order."""
    earlier = [*before, *[None] * (len(now) - len(before))]
    return tuple(_plus(row, one, -1) if one else row for row, one in zip(now, earlier, strict=False))


def _plus(one: DeviceTime, other: DeviceTime, sign: int) -> DeviceTime:
    names = dict.fromkeys((*one.waited_s, *other.waited_s))
    waited = {name: round(one.waited_s.get(name, 0.0) + sign * other.waited_s.get(name, 0.0), 3) for name in names}
    return replace(one, busy_s=round(one.busy_s + sign * other.busy_s, 3), waited_s=waited)


def used(run: Run) -> tuple[DeviceTime, ...]:
    """What each device did in all sessions of a run."""
    return total(row for record in run.used.values() for row in record.devices)


def as_json(device: DeviceTime) -> dict[str, Any]:
    """Seconds, and of these the shares."""
    whole = device.seconds or 1.0
    return {
        "card": device.card,
        "uuid": device.uuid,
        "host": device.host,
        "seconds": round(device.seconds, 3),
        "busy_share": round(device.busy_share, 4),
        "waited_for": {name: round(seconds / whole, 4) for name, seconds in device.waited_s.items() if seconds > 0},
    }


@dataclass(slots=True)
class DeviceLog:
    """Writes what the devices of a pool do into a run, which shares them with others: what `read` gives, since
    `before`."""

    run: Run
    journal: Journal
    read: Callable[[], tuple[DeviceTime, ...]]
    observe: Observer
    before: tuple[DeviceTime, ...] = ()

    def record(self) -> None:
        """Write down what they did since this was called last."""
        now = self.read()
        rows = tuple(_named(row, self.run.description.device) for row in since(now, self.before) if row.seconds > 0)
        self.before = now
        if not rows:
            return
        record = DevicesUsed(len(self.run.used), rows)
        self.journal.append(record)
        self.run.record(record)
        self.observe(DevicesSeen(used(self.run)))


def _named(row: DeviceTime, device: Device) -> DeviceTime:
    """A device that has told nothing of itself yet is the one that described the problem."""
    return row if row.card else replace(row, card=device.name, uuid=device.uuid, host=device.host)
