"""Experience in words: what was tried, what it promised, what was measured, how often, and why it failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, zip_longest
from statistics import median

from kernel_agent.knowledge.similarity import says_the_same
from rag.experience.ledger import EAGER, Experience

BUDGET = 2400
"""Bytes that experience may take of a prompt: about 600 tokens."""

WHY = 160
"""Characters of a reason."""


def experience_text(known: Iterable[Experience], budget: int = BUDGET) -> str:
    """A line for each idea that was tried, however often, in at most `budget` bytes; the most telling first.

    What was faster and what was not take turns, so that both are told of.
    """
    groups = grouped(known)
    won = [group for group in groups if _wins(group) * 2 > len(group)]
    lost = [group for group in groups if group not in won]
    rows: list[str] = []
    for group in chain.from_iterable(zip_longest(won, lost)):
        if group is None:
            continue
        row = line(group)
        budget -= len(row.encode()) + 1
        if budget < 0:
            break
        rows.append(row)
    return "\n".join(rows)


def grouped(known: Iterable[Experience]) -> list[list[Experience]]:
    """The experiences by what was tried on which device against which limit, in order, whatever the words for it."""
    groups: list[list[Experience]] = []
    for one in known:
        group = next((group for group in groups if _alike(one, group[0])), None)
        if group is None:
            groups.append([one])
        else:
            group.append(one)
    return groups


def line(group: Sequence[Experience]) -> str:
    """What is known of one idea: where, what it promised, what was measured over what, how often, why not."""
    first = group[0]
    measured = sorted((one for one in group if one.gain), key=lambda one: one.gain.median if one.gain else 0.0)
    parts = [f"'{first.title}'"]
    if promised := [one.predicted for one in group if one.predicted is not None]:
        parts.append(f"predicted {median(promised):.3g}x,")
    if measured:
        middle = measured[len(measured) // 2]
        assert middle.gain is not None, "only what has a gain is measured"
        low, high = f"{middle.gain.low:.2f}", f"{middle.gain.high:.2f}"
        parts.append(f"measured {middle.gain.median:.2f}x [{low}, {high}] over {_quoted(middle)},")
    parts.append(_count(group))
    if reason := next((one.why for one in group if one.verdict != "faster" and one.why), ""):
        parts.append(f"({_short(reason)})")
    row = f"on {first.device}, {'+'.join(first.families)}, {first.bottleneck}: {' '.join(parts)} [{_when(group)}]"
    return " ".join(row.encode("utf-8", "replace").decode().split())


def _quoted(one: Experience) -> str:
    return one.baseline if one.baseline == EAGER else f"'{one.baseline}'"


def _alike(one: Experience, other: Experience) -> bool:
    return _place(one) == _place(other) and (one.title == other.title or says_the_same(_said(one), _said(other)))


def _place(one: Experience) -> tuple[object, ...]:
    """What two tries have in common that can be told together: a first kernel is none of the changes to a kernel."""
    return one.target, one.device, one.families, one.bottleneck, one.baseline == EAGER


def _said(one: Experience) -> str:
    return f"{one.title}. {one.transformation}" if one.transformation else one.title


def _wins(group: Sequence[Experience]) -> int:
    return sum(one.verdict == "faster" for one in group)


def _count(group: Sequence[Experience]) -> str:
    """The verdict of a single try; of several how many were faster, and what became of the others."""
    if len(group) == 1:
        return group[0].verdict.replace("_", " ")
    others = Counter(one.verdict.replace("_", " ") for one in group if one.verdict != "faster")
    rest = "".join(f", {count} {verdict}" for verdict, count in others.most_common())
    return f"{_wins(group)} of {len(group)} times faster{rest}"


def _when(group: Sequence[Experience]) -> str:
    last = max(group, key=lambda one: one.date)
    versions = (f"torch {last.torch}" if last.torch else "", last.toolkit or "")
    return ", ".join(filter(None, (last.date, *versions)))


def _short(text: str) -> str:
    return text if len(text) <= WHY else f"{text[: WHY - 3]}..."
