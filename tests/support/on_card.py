"""Candidates of the templates, and kernels, on a card."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")


def made(problem: str, candidate: str) -> tuple[Any, Any, list[Any]]:
    """A module, a candidate with its parameters, and inputs of it. Skips where the card is not Hopper's."""
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("made for compute capability 9.0")
    original, written = dict[str, Any](), dict[str, Any]()
    exec(problem, original)
    exec(candidate, written)
    model, ours = original["Model"]().cuda().eval(), written["ModelNew"]().cuda().eval()
    ours.load_state_dict(model.state_dict())
    return model, ours, [x.cuda() for x in original["get_inputs"]()]


def told(what: str, run: Any) -> None:
    """Print the microseconds of a call, the least of twenty."""
    times = []
    for _ in range(20):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    print(f"{what}: {min(times):.1f} us")
