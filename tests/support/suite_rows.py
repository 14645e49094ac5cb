"""Made-up rows of a suite."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kernel_agent.run.types import Interval
from kernel_agent.suite.types import Row


def around(median: float, share: float = 0.01) -> Interval:
    """An interval that reaches so far to both sides."""
    return Interval(median * (1 - share), median, median * (1 + share))


def kernel(problem: str, speedup: float, over_compile: float | None = None, **more: Any) -> Row:
    """A problem with a kernel that is this much faster than eager PyTorch, which takes 1 ms."""
    compile_us = None if over_compile is None else 1000.0 * over_compile / speedup
    row = Row(
        problem,
        "improved" if speedup > 1 else "no_improvement",
        authorship="custom",
        kernel_us=1000.0 / speedup,
        eager_us=1000.0,
        compile_us=compile_us,
        compile_mode=None if over_compile is None else "compile",
        limit_us=200.0,
        speedup=around(speedup),
        versus_compile=None if over_compile is None else around(over_compile),
        evaluations=12,
        tokens=0,
        dollars=0.0,
        minutes=2.5,
        device="a card",
        correct=True,
        reached=around(0.2 * speedup),
        target="cuda",
    )
    return replace(row, **more)


def original(problem: str, compile_us: float = 800.0, **more: Any) -> Row:
    """A problem where nothing beat the original, which takes 1 ms."""
    row = Row(
        problem,
        "no_improvement",
        eager_us=1000.0,
        compile_us=compile_us,
        compile_mode="compile",
        limit_us=200.0,
        speedup=Interval(1.0, 1.0, 1.0),
        versus_compile=around(compile_us / 1000.0, 0.0),
        evaluations=8,
        dollars=0.0,
        minutes=2.0,
        device="a card",
        target="cuda",
    )
    return replace(row, **more)
