"""A run's numbers in words, as the terminal and the page say them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kernel_agent.run import tree
from kernel_agent.run.devices import used
from kernel_agent.run.occupancy import DeviceTime
from kernel_agent.run.tree import Run
from kernel_agent.run.types import Description, Interval, baseline_title, baseline_titles
from kernel_agent.targets import target_of

WAITS = {"proposer": "the proposer", "building": "builds", "preparing": "inputs", "waiting": "calls of others"}
"""What a device waits for, in words."""


def ms(us: float) -> str:
    """Microseconds as milliseconds of three digits."""
    return f"{us / 1e3:,.0f} ms" if us >= 1e5 else f"{us / 1e3:.3g} ms"


def times(interval: Interval | None) -> str:
    """A speed-up with its 95 % interval."""
    return f"{interval.median:.2f}x [{interval.low:.2f}, {interval.high:.2f}]" if interval else "not measured"


def baselines(description: Description) -> str:
    """The times of the baselines that are known, those still to come, and the limit."""
    parts = [f"{baseline_title(name)} {ms(timing.median_us)}" for name, timing in description.baselines.items()]
    missing = [f"{baseline_titles(description.unmeasured)} not timed yet"] if description.unmeasured else []
    limit = [f"limit {ms(description.admissible_us)}"] if description.admissible_us else []
    return ", ".join(parts + missing + limit)


def measured(run: Run, retrieval: str | None) -> Iterator[str]:
    """How the numbers came about."""
    device = run.description.device
    threads = f", {device.threads} threads" if not target_of(device.target).on_gpu else ""
    yield f"measured on {device.name} ({device.target}, {device.arch}{threads}): {baselines(run.description)}"
    if confirmed := run.confirmations.get(tree.winner(run).source_id):
        own = ", ".join(f"{baseline_title(v.baseline)} {ms(v.timing.median_us)}" for v in confirmed.versus)
        yield f"when the best was confirmed: {own}"
    yield from map(occupied, used(run))
    if run.description.limit_us:
        yield "limit: the bytes moved once, or matrix operations in a way that is exact enough, at measured rates"
    yield (
        "a candidate and eager PyTorch take turns on the same secret inputs; intervals are 95 % of the paired ratio; "
        "outputs are checked against float64, the error is in rounding units of which 64 are allowed, or 4 times what "
        "the reference errs where it takes TF32 itself"
    )
    if run.confirmations:
        yield (
            "confirmed: the speed-up when judged a second time, with new inputs in fresh processes; "
            "the best is surely the fastest by it: its interval has the highest lower end"
        )
    if retrieval:
        yield f"retrieval: {retrieval}"


def occupied(device: DeviceTime) -> str:
    """How much of the time a device was busy, and what it waited for in the rest."""
    place = ", ".join(filter(None, (device.uuid, device.host)))
    waits = sorted(device.waited_s.items(), key=lambda wait: -wait[1])
    told = [f"{WAITS.get(name, name)} {s / device.seconds:.0%}" for name, s in waits if s >= 0.005 * device.seconds]
    rest = f"; it waited for {', '.join(told)}" if told else ""
    name = f"{device.card}{f' ({place})' if place else ''}"
    return f"{name} was busy {device.busy_share:.0%} of {device.seconds:,.0f} s{rest}"


def in_short(facts: Mapping[str, Any]) -> str:
    """The result of a run in one sentence, by its facts."""
    head, where = facts["headline"], f"{facts['name']} on {facts['target']} ({facts['device']['name']})"
    count = len(facts["trials"]) - 1
    if head["sure"] == "none":
        return f"{where}: no kernel faster than eager PyTorch in {count} trials."
    low, high = head["speedup_interval"]
    sure = "confirmed by a second judgement" if head["sure"] == "confirmed" else "by its first judgement"
    return f"{where}: {head['speedup']:.2f}x [{low:.2f}, {high:.2f}] against eager PyTorch in {count} trials, {sure}."


def suite_in_short(facts: Mapping[str, Any]) -> str:
    """What a suite came to in one sentence, by its facts."""
    sums = facts["sums"]
    mean = sums["eager"]["over_all"]
    said = f", {mean:.2f}x over eager PyTorch in the mean" if mean else ""
    return f"{facts['name']}: {sums['correct']} of {sums['problems']} problems have a kernel that is right{said}."
