"""An experience to vary in tests: a row kept in registers, on an H100, as a second judgement found it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rag.experience.ledger import EAGER, Experience, Gain

ROW = Experience(
    id="row",
    run="softmax-1",
    date="2026-11-20",
    problem="softmax",
    target="cuda",
    arch="sm_90",
    device="NVIDIA H100 80GB HBM3",
    families=("reduction",),
    operators=("amax", "sum"),
    bottleneck="dram-bw",
    title="Hold the row in registers",
    transformation="each thread keeps its values of the row in registers",
    verdict="faster",
    baseline=EAGER,
    why="DRAM sees the row once",
    predicted=1.3,
    gain=Gain(1.25, 1.27, 1.29),
    speedup=Gain(1.25, 1.27, 1.29),
    confirmed=True,
    torch="2.13.0",
    toolkit="CUDA 13.0",
)


def experience(id: str = "row", **changes: Any) -> Experience:
    """ROW with changes; a verdict of failure takes its gain away."""
    if changes.get("verdict", "faster") not in ("faster", "slower", "inconclusive"):
        changes |= {"gain": None, "speedup": None}
    return replace(ROW, id=id, **changes)
