"""How long what torch.compile launches takes, launch by launch, as torch's profiler sees single calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ncu_server.worker.answers import LaunchTime
from ncu_server.worker.timing.devices import Calls, Device
from ncu_server.worker.tracing import inductor

CALLS = 7
"""Calls that are profiled, each by itself; the first, which meets the profiler's set-up, is left out."""

Span = tuple[str, float, float]
"""A name, and when it begins and ends in microseconds."""


def launch_times(call: Callable[[], Any], device: Device, reset: Callable[[], object]) -> list[LaunchTime]:
    """What one call launches, in the order of its first launch, each with the microseconds that all its launches
    take: the least over CALLS calls, as whatever disturbs a call makes it longer. The device's cache is emptied
    before each call as for a timing, and `reset` comes before.

    On a GPU these are kernels by their own names, copies and fills among them; on a CPU Inductor's kernels and the
    operators of torch between them.
    """
    seen: list[list[Span]] = []

    def before(_: int) -> None:
        reset()

    def profiled(_: int) -> None:
        device.settle()
        with torch.profiler.profile(activities=device.activities) as profiler:
            call()
            device.settle()
        events = profiler.events() or []
        seen.append(list(_on_host(events) if device.is_host else _on_device(events)))

    with inductor.marked() if device.is_host else _as_it_is(), torch.no_grad():
        device.clock(Calls(profiled, CALLS, before=before))
    return summed(seen[1:])


def summed(calls: Sequence[Iterable[Span]]) -> list[LaunchTime]:
    """The least over calls, and how often each name comes in the last of them."""
    least: dict[str, float] = {}
    count: dict[str, int] = {}
    for spans in calls:
        sums: dict[str, float] = defaultdict(float)
        count = defaultdict(int)
        for name, start, end in sorted(spans, key=lambda span: span[1]):
            sums[name] += end - start
            count[name] += 1
        for name, us in sums.items():
            least[name] = min(us, least.get(name, us))
    return [{"name": name, "us": least[name], "launches": times} for name, times in count.items()]


def outermost(spans: Iterable[Span]) -> Iterator[Span]:
    """Those of one thread that lie in no other."""
    until = float("-inf")
    for name, start, end in sorted(spans, key=lambda span: (span[1], -span[2])):
        if start >= until:
            until = end
            yield name, start, end


def _on_device(events: Iterable[Any]) -> Iterator[Span]:
    for event in events:
        if event.device_type != torch.autograd.DeviceType.CPU and not event.is_user_annotation:
            yield event.name, event.time_range.start, event.time_range.end


def _on_host(events: Iterable[Any]) -> Iterator[Span]:
    """Operators of torch and what `inductor.marked` marks; what stands around them are no launches."""
    return outermost(
        (event.name.removeprefix(inductor.MARK), event.time_range.start, event.time_range.end)
        for event in events
        if event.name.startswith(inductor.MARK) or "::" in event.name
    )


@contextmanager
def _as_it_is() -> Iterator[None]:
    yield
