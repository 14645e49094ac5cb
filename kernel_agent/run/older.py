"""Rows of a journal as earlier versions wrote them, brought into today's form. Nothing else knows how they looked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kernel_agent.run.gain import factor

PARTS = {
    "Bottleneck": "bottleneck",
    "Transformation": "transformation",
    "Reasoning": "reasoning",
    "Predicted gain": "predicted_gain",
    "Risk": "risk",
}
"""Fields of an idea, by the labels under which they stood in its reasoning."""

PART = re.compile(rf"^({'|'.join(PARTS)}): (.*?)(?=\n(?:{'|'.join(PARTS)}): |\Z)", re.MULTILINE | re.DOTALL)


def idea(row: Mapping[str, Any]) -> dict[str, Any]:
    """An idea's row. Once its parts stood as prose in `reasoning`, and its second parent was its `mate`."""
    new = dict(row)
    if "mate" in new:
        new.setdefault("second_parent", new.pop("mate"))
    if "transformation" in new:
        return new
    parts = {PARTS[label]: text for label, text in PART.findall(str(new.get("reasoning", "")))}
    if parts:
        new |= {"reasoning": "", **parts}
    return new | {"predicted": factor(parts.get("predicted_gain", ""))}


def ideas(row: Mapping[str, Any]) -> dict[str, Any]:
    """A round's ideas, each in today's form."""
    return {**row, "ideas": [idea(one) for one in row["ideas"]]}
