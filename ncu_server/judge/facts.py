"""What a problem is apart from its times: the same however often it is described."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ncu_server.rules.precision import Name
from ncu_server.wire.evaluation import ChipResult, Peaks, PrecisionResult, WayResult
from ncu_server.worker.answers import Work


@dataclass(frozen=True, slots=True)
class Facts:
    """The traced graph, or why there is none; what calls take and give, must move and compute; what the device is; how
    exact a kernel has to be, and what each way to compute products comes to."""

    graph: dict[str, Any] | None
    operators: list[str]
    elementwise: float
    graph_error: str | None
    contract: dict[str, Any]
    work: Work
    peaks: Peaks
    chip: ChipResult
    features: list[str]
    arithmetic: Name | None
    precision: list[PrecisionResult]
    ways: list[WayResult]
