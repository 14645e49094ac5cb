"""Two launches held against each other: what changed, in plain words first. Pure functions over their facts."""

from __future__ import annotations

import math

from ncu_server.profiler.digest import digest
from ncu_server.profiler.facts import KernelFacts
from ncu_server.profiler.metrics import ROWS, value
from ncu_server.wire.profiling import Change, ComparisonResult, KernelDigest, NcuRule

MOST_CHANGES, MOST_RULES, LEAST_FACTOR = 12, 5, 1.1
SAME_TIME, SAME_CLOCK = 0.03, 0.05


def compare(before: KernelFacts, after: KernelFacts, names: tuple[str, str]) -> ComparisonResult:
    """What became of `before`; `names` are what the two are called."""
    old, new = digest(before), digest(after)
    notes = _notes(before, after, old, new)
    changes = _changes(before, after)
    return ComparisonResult(
        says=[_time(old, new), *_bound(old, new), *_troubles(old, new), *(_words(change) for change in changes[:4])],
        comparable=not notes,
        before=f"{names[0]}: {before.name}",
        after=f"{names[1]}: {after.name}",
        changes=changes,
        rules_resolved=_only(old.rules, new.rules),
        rules_new=_only(new.rules, old.rules),
        notes=[*notes, "times are ncu's, at its clocks and cold caches: evaluate_kernel says which one is faster"],
    )


def _time(old: KernelDigest, new: KernelDigest) -> str:
    if not old.duration_us or not new.duration_us:
        return "how long they took is not in both reports"
    ratio = old.duration_us / new.duration_us
    times = f"{new.duration_us:.4g} us after {old.duration_us:.4g} us"
    if abs(ratio - 1) < SAME_TIME:
        return f"as long as before under ncu: {times}"
    return f"{ratio:.2f} times as fast under ncu: {times}" if ratio > 1 else f"slower under ncu ({ratio:.2f}x): {times}"


def _bound(old: KernelDigest, new: KernelDigest) -> list[str]:
    if old.bound == new.bound:
        return [f"{'still ' if new.bound == 'near the limit' else 'still bound by '}{new.bound}: {new.why}"]
    return [f"bound by {old.bound} before, now {new.bound}: {new.why}"]


def _troubles(old: KernelDigest, new: KernelDigest) -> list[str]:
    had, has = ({finding.trouble: finding.words for finding in one.findings} for one in (old, new))
    gone = [f"cured: {words}" for trouble, words in had.items() if trouble not in has]
    return gone + [f"new trouble: {words}" for trouble, words in has.items() if trouble not in had]


def _changes(before: KernelFacts, after: KernelFacts) -> list[Change]:
    """The numbers that moved most, by their ratio."""
    moved = []
    for name, row in ROWS.items():
        a, b = value(before.metrics, name), value(after.metrics, name)
        if row.what and a is not None and b is not None and (size := _size(a, b)) >= math.log(LEAST_FACTOR):
            moved.append(
                (size, Change(what=row.what, before=float(f"{a:.4g}"), after=float(f"{b:.4g}"), unit=row.unit))
            )
    return [change for _, change in sorted(moved, key=lambda m: -m[0])[:MOST_CHANGES]]


def _size(a: float, b: float) -> float:
    """How far apart two amounts are; percents and counts below one are as good as none."""
    return abs(math.log(max(a, 1.0) / max(b, 1.0)))


def _words(change: Change) -> str:
    return f"{change.what}: {change.before:,.4g} before, {change.after:,.4g} after ({change.unit})"


def _only(here: list[NcuRule], there: list[NcuRule]) -> list[str]:
    known = {rule.title for rule in there}
    return list(dict.fromkeys(rule.title for rule in here if rule.title not in known))[:MOST_RULES]


def _notes(before: KernelFacts, after: KernelFacts, old: KernelDigest, new: KernelDigest) -> list[str]:
    """Why the two may not be held against each other."""
    notes = []
    devices = [one.metrics.get("device__attribute_display_name") for one in (before, after)]
    if devices[0] != devices[1]:
        notes.append(f"they ran on different devices: {devices[0]} and {devices[1]}")
    if old.clock_ghz and new.clock_ghz and abs(old.clock_ghz / new.clock_ghz - 1) > SAME_CLOCK:
        notes.append(f"the SM clocks differ: {old.clock_ghz} GHz and {new.clock_ghz} GHz")
    only = set(before.metrics) ^ set(after.metrics)
    if len(only) > len(set(before.metrics) & set(after.metrics)):
        notes.append("different sections were collected: most counters are in one report only")
    return notes
