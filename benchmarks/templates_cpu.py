"""Kernels of the templates beside eager PyTorch and torch.compile on a processor that others use too, by CPU time.

python -m benchmarks.templates_cpu FILE... [--starts N] [--rounds N]

For each problem in KernelBench's form: the templates' first starting points, eager and torch.compile's default mode
take turns on one thread, and what each call takes is the CPU time of that thread, which a busy machine lengthens far
less than the clock on the wall. No judge looks on: outputs are compared with eager's, and memory that is freed is kept,
as the judge keeps it. A speed-up is the median over the rounds of eager's time over the other's.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.regions.works import work_of
from kernel_agent.run.types import Device

HEAD = "| problem | eager ms | ours ms | compile ms | over eager | compile over eager | largest difference | idea |"
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
TURN_S = 0.02
"""CPU seconds of one turn at least."""

Calls = dict[str, Callable[[], Any]]


def row(file: Path, starts: int, rounds: int) -> str:
    """The problem's line of the table."""
    calls, titles = prepared(file, starts)
    import torch

    with torch.no_grad():
        wanted = flat(calls["eager"]())
        worst = max((apart(flat(calls[title]()), wanted) for title in titles), default=0.0)
        times = taking_turns(calls, rounds)
    best = max(titles, key=lambda title: over(times, title), default="eager")
    cells = [
        file.stem,
        *(f"{1e3 * min(times[name]):.2f}" for name in ("eager", best, "compile")),
        *(f"{over(times, name):.2f}x" for name in (best, "compile")),
        f"{worst:.1e}",
        best if titles else "the original",
    ]
    return f"| {' | '.join(cells)} |"


def prepared(file: Path, starts: int) -> tuple[Calls, list[str]]:
    """What is called, and the titles of the kernels among it."""
    import torch

    from ncu_server.worker.building.modules import has_dropout
    from ncu_server.worker.tracing.graph import graph

    source = file.read_text()
    problem = loaded(source, "problem")
    torch.manual_seed(0)
    arguments = problem.get_init_inputs()
    model, inputs = problem.Model(*arguments), problem.get_inputs()
    if has_dropout(model):
        model.eval()
    calls: Calls = {"eager": lambda: model(*inputs)}
    state = {name: value.clone() for name, value in model.state_dict().items()}
    device = Device("cpu", "this processor", f"x86_64-{_vectors()}", 1, 20.0)
    titles = list[str]()
    try:
        work = work_of(graph(model, (list(inputs), {}))["graph"], device)
        for start in work.space.starts[:starts]:
            kernel = loaded(work.write(source, start), f"kernel{len(titles)}").ModelNew(*arguments)
            kernel.load_state_dict(state)
            kernel.train(model.training)
            titles.append(work.space.title(start))
            calls[titles[-1]] = lambda kernel=kernel: kernel(*inputs)  # type: ignore[misc]
    except NotCovered:
        pass
    compiled = torch.compile(model)
    calls["compile"] = lambda: compiled(*inputs)
    return calls, titles


def taking_turns(calls: Calls, rounds: int) -> dict[str, list[float]]:
    """CPU seconds of a call, a number a round."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name, call in calls.items():
            began, count = time.thread_time(), 0
            while count < 2 or time.thread_time() - began < TURN_S:
                call()
                count += 1
            if number:
                times[name].append((time.thread_time() - began) / count)
    return times


def over(times: Mapping[str, list[float]], name: str) -> float:
    """The median over the rounds of eager's time over this one's."""
    return statistics.median(a / b for a, b in zip(times["eager"], times[name], strict=True))


def flat(outputs: Any) -> list[Any]:
    return [one for part in outputs for one in flat(part)] if isinstance(outputs, list | tuple) else [outputs]


def apart(some: list[Any], others: list[Any]) -> float:
    """The largest difference."""
    return max(float((a.double() - b.double()).abs().max()) for a, b in zip(some, others, strict=True))


def loaded(source: str, name: str) -> Any:
    """A module of this source; load_inline wants a file."""
    path = Path(tempfile.mkdtemp()) / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _vectors() -> str:
    from ncu_server.targets.cpu import probe

    return probe().arch.partition("-")[2]


def main() -> None:
    """Print a row a problem as it comes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--starts", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_THRESHOLD, 1 << 25)
    libc.mallopt(M_TRIM_THRESHOLD, -1)
    import torch

    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, one thread, {date.today()}, load {os.getloadavg()[0]:.0f}\n\n{HEAD}")
    print("|" + "---|" * HEAD.count(" | ") + "---|")
    for file in arguments.files:
        print(row(file, arguments.starts, arguments.rounds), flush=True)


if __name__ == "__main__":
    main()
