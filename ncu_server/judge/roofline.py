"""The roofline bound of a problem: what it must move and compute over what the device was measured to reach.

S. Williams, A. Waterman, D. Patterson, "Roofline", CACM 52(4), 2009: time >= max(bytes / bandwidth, operations / rate).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ncu_server.wire.evaluation import Peaks
from ncu_server.worker.answers import Work


@dataclass(frozen=True, slots=True)
class Limit:
    """Microseconds that no kernel goes below, and the measured rate that made them, in words."""

    us: float
    rate: str


def limit(work: Work, peaks: Peaks) -> Limit:
    """No kernel is faster that moves the counted bytes and does the counted matrix operations at the rates known here.

    Other algebra needs fewer operations, and narrower formats (int8 digits of float32) have higher rates.
    """
    moved = moving_us(work, peaks)
    rate, name = _rate(work, peaks)
    multiplied = float(work["flops"]) / rate / 1e6
    if multiplied > moved:
        return Limit(multiplied, f"{rate:,.3g} TFLOP/s of {name} products")
    return Limit(moved, moving_rate(peaks))


def moving_us(work: Work, peaks: Peaks) -> float:
    """Microseconds that no kernel goes below that reads and writes the counted bytes: read faster than a copy reads and
    writes, and written at what is then left of the copy's rate."""
    return float(work["read_bytes"] / peaks.reading_gbps + work["written_bytes"] / peaks.writing_gbps) / 1e3


def way_us(work: Work, peaks: Peaks, products: Mapping[str, int]) -> float | None:
    """Microseconds that no kernel goes below that computes each of the counted products by so many in each format: one
    TF32 product, or three of int8 digits. None where one of the rates is not known."""
    moved = moving_us(work, peaks)
    took = 0.0
    for name, count in products.items():
        if not (rate := peaks.products.get(name)):
            return None
        took += count * work["flops"] / rate / 1e6
    return float(max(moved, took))


def floor_us(work: Work, peaks: Peaks, read_over_copy: float, cold: bool) -> float:
    """Faster than this is not to be believed: inputs were not all read, or the clock did not see it. A device may read
    `read_over_copy` times faster than it copies.

    Operations do not count, since an algebraic rewrite may spare them, nor do parameters, of which a constructor may
    keep less; outputs count beyond what the last-level cache can hold back; nothing counts where the inputs lie in it.
    """
    if not cold:
        return 0.0
    written = max(0.0, work["written_bytes"] - peaks.last_cache_bytes)
    return float((work["argument_bytes"] + written) / peaks.copy_gbps / 1e3 / read_over_copy)


def moving_rate(peaks: Peaks) -> str:
    """The rates at which bytes are moved, in words."""
    if peaks.read_gbps is None:
        return f"{peaks.copy_gbps:,.0f} GB/s of a copy"
    return f"{peaks.reading_gbps:,.0f} GB/s of reading, {peaks.writing_gbps:,.0f} GB/s of writing"


def _rate(work: Work, peaks: Peaks) -> tuple[float, str]:
    """TFLOP/s and format of the fastest unit that can give the precision asked for: split TF32 reaches float32's,
    float16 at bfloat16's rate that of TF32, and what is given in a byte may be multiplied as it is."""
    formats = {"fp32", "TF32", *work["byte_formats"]} | ({"bf16"} if work["narrow"] else set())
    return max((rate, name) for name, rate in peaks.products.items() if rate and name in formats)
