"""KernelBench's own sizes before the judge: each reference described, checked and timed against itself.

python -m benchmarks.kernelbench_sizes CHECKOUT [--levels 1 2 3] [--first 5] [--every 5] [--only LEVEL/ID ...]
    [--at-once N] [--leave-gib N] [--lean] [--target T] [--limit-s N] [--budget-s N] [--out DIR]

The reference's own code stands for the candidate, in a candidate's process, through the judge's own stages; only
authorship is not asked (it is the library's). `idea` is what a model waits for: the description, with eager's time.
W is the peak of one call of the reference; the
other peak is that of all processes together, beyond what was in use before, and `by process` what each has at that
moment as NVML tells it: what lies in memory that processes share is the one's that made it, or nobody's. `--lean` has
each judged once more with 2.7 W and the processes' own free. Each problem's row is kept as soon as it is there, and a
second call goes on with those that lack one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median, quantiles

import pynvml

from benchmarks.same_against_same import itself
from benchmarks.serving import arguments, keep, machine, need, problems, table
from ncu_server.errors import Refusal
from ncu_server.judge.benchmark import CANDIDATE, time_candidate
from ncu_server.judge.candidate import Objection
from ncu_server.judge.checking import check
from ncu_server.judge.describe import describe
from ncu_server.judge.memory_plan import GIB, PROCESS_BYTES, PROCESSES
from ncu_server.judge.problems import Workshop
from ncu_server.judge.room import plan_again, working_bytes
from ncu_server.machine.tickets import unheard
from ncu_server.sandbox.child import ChildError

SAMPLE_S = 0.02
LEAN = 2.7  # calls of the reference that a small card has free
STEM = "kernelbench-sizes"


@dataclass(slots=True)
class Row:
    """One problem, as far as it came: its status, seconds by stage, bytes."""

    problem: str
    status: str = "judged"
    why: str = ""
    input_bytes: int = 0
    idea_s: float = 0.0
    verdict_s: float = 0.0
    check_s: float = 0.0
    time_s: float = 0.0
    peak_bytes: int = 0
    working_bytes: int = 0
    eager_us: float = 0.0
    error: float = 0.0
    plan: str = ""
    processes: dict[str, int] = field(default_factory=dict)

    def cells(self) -> list[str]:
        seconds = [f"{s:.1f}" for s in (self.idea_s, self.verdict_s, self.check_s, self.time_s)]
        sizes = [f"{size / 2**30:.2f}" for size in (self.input_bytes, self.working_bytes, self.peak_bytes)]
        held = ", ".join(f"{name} {size / 2**30:.2f}" for name, size in self.processes.items())
        calls = f"{self.peak_bytes / self.working_bytes:.2f}" if self.working_bytes else ""
        return [
            *(self.problem, self.status, sizes[0], *seconds, *sizes[1:], calls, held, self.plan),
            *(f"{self.eager_us:,.0f}", self.why),
        ]


class Memory:
    """The device's memory in use, all processes together: the most since `begin`, beyond what there was then, and what
    each process that came since has at that moment; `names` are those of processes by their number."""

    def __init__(self, uuid: str | None) -> None:
        self._uuid, self._most, self._first, self._ends = uuid, 0, 0, threading.Event()
        self._before: set[int] = set()
        self._came: list[int] = []
        self._held: dict[int, int] = {}
        self.names: dict[int, str] = {}
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _used(self) -> int:
        if self._uuid is None:
            return 0
        pynvml.nvmlInit()
        return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByUUID(self._uuid)).used)

    def _each(self) -> dict[int, int]:
        """Bytes by process."""
        if self._uuid is None:
            return {}
        with contextlib.suppress(pynvml.NVMLError):  # which may not be told in a container
            rows = pynvml.nvmlDeviceGetComputeRunningProcesses(pynvml.nvmlDeviceGetHandleByUUID(self._uuid))
            return {row.pid: row.usedGpuMemory or 0 for row in rows}
        return {}

    def _watch(self) -> None:
        while not self._ends.wait(SAMPLE_S):
            used, each = self._used(), self._each()
            self._came += [pid for pid in each if pid not in self._before and pid not in self._came]
            if used > self._most:
                self._most, self._held = used, {pid: size for pid, size in each.items() if pid in self._came}

    def begin(self) -> None:
        self._first = self._most = self._used()
        self._before, self._came, self._held = set(self._each()), [], {}

    @property
    def processes(self) -> dict[str, int]:
        """What each process has at the peak; one without a name goes by the order in which they came."""
        named = {pid: self.names.get(pid, f"process {1 + self._came.index(pid)}") for pid in self._held}
        return {named[pid]: size for pid, size in self._held.items()}

    @property
    def peak(self) -> int:
        return self._most - self._first

    @contextlib.contextmanager
    def watched(self) -> Iterator[Memory]:
        self._thread.start()
        try:
            yield self
        finally:
            self._ends.set()
            self._thread.join()


async def judged(workshop: Workshop, target: str, text: str, found: Row, memory: Memory) -> None:
    """Describe a problem, then check and time its own code in a candidate's place."""
    device = workshop.machine.device(target)
    began = time.monotonic()
    described, _, _ = await describe(workshop, text, target, ("eager",), unheard)
    found.idea_s = time.monotonic() - began
    found.eager_us = described.baselines[0].timing.median_us
    began = time.monotonic()
    async with workshop.problems.prepared(text, device) as prepared, device.lease.alone():
        found.input_bytes, found.working_bytes = prepared.drawn.inputs.spec["bytes"], working_bytes(prepared.drawn)
        await plan_again(prepared, baselines=1)
        found.plan = prepared.plan.mode if prepared.plan else ""
        async with itself(prepared) as attempt:
            judge = await prepared.judge()
            memory.names |= {prepared.eager.pid: "reference", judge.pid: "comparison", attempt.child.pid: "candidate"}
            checking = time.monotonic()
            exact = await check(attempt)
            found.error = exact.error if exact else 0.0
            timing = time.monotonic()
            found.check_s = timing - checking
            raced = await time_candidate(attempt)
            found.time_s = time.monotonic() - timing
        await prepared.clear()
    found.verdict_s = time.monotonic() - began
    found.eager_us = raced.runs[0].samples.timing(CANDIDATE).median_us


async def row(workshop: Workshop, memory: Memory, args: argparse.Namespace, path: Path) -> Row:
    """A problem's row, whatever comes of it."""
    found = Row(_name(path))
    memory.begin()
    try:
        async with asyncio.timeout(args.limit_s):
            await judged(workshop, args.target, path.read_text(), found, memory)
    except TimeoutError:
        found.status, found.why = "time", f"not done within {args.limit_s:.0f} s"
    except Objection as objection:
        found.status, found.why = objection.status, objection.log
    except Refusal as refusal:
        found.status, found.why = "refused", str(refusal)
    except ChildError as error:
        found.status, found.why = "error", str(error)
    found.why = " ".join(found.why.split())[:200].replace("|", "/")
    found.peak_bytes, found.processes = memory.peak, memory.processes
    return found


def _name(path: Path) -> str:
    return f"{path.parent.name.removeprefix('level')}/{path.stem}"


@contextlib.contextmanager
def _watched(cache: str, args: argparse.Namespace) -> Iterator[tuple[Workshop, Memory]]:
    """Processes of our own, and the device's memory beside them."""
    with (
        contextlib.closing(Workshop(Path(cache))) as workshop,
        Memory(workshop.machine.device(args.target).probe.uuid).watched() as memory,
    ):
        yield workshop, memory


async def main() -> None:
    """Judge, print each row, and keep the table where `--out` says."""
    args = _parser().parse_args()
    need(args.target)
    kept = args.out / f"{STEM}.jsonl"
    args.out.mkdir(parents=True, exist_ok=True)
    rows = [Row(**json.loads(line)) for line in kept.read_text().splitlines()] if kept.exists() else []
    done, began = {one.problem for one in rows}, time.monotonic()
    every = 1 if args.only else args.every
    paths = [path for level in args.levels for path in problems(args.checkout, level, args.first, every)]
    paths = [path for path in paths if not args.only or _name(path).partition("_")[0] in args.only]

    def keep_row(found: Row) -> None:
        rows.append(found)
        with kept.open("a") as file:
            file.write(json.dumps(asdict(found)) + "\n")
        print(" | ".join(found.cells()), flush=True)

    with tempfile.TemporaryDirectory(prefix="sizes-") as cache:
        with card_of(args.leave_gib) if args.leave_gib else contextlib.nullcontext(), _watched(cache, args) as watched:
            room = asyncio.Semaphore(args.at_once)

            async def one(path: Path) -> None:
                async with room:
                    if time.monotonic() - began <= args.budget_s:
                        keep_row(await row(*watched, args, path))

            await asyncio.gather(*(one(path) for path in paths if _name(path) not in done))
        for path in paths if args.lean else ():
            calls = {one.plan: one.working_bytes for one in rows if one.problem == _name(path)}
            if "full" in calls and "lean" not in calls:
                with (
                    card_of(LEAN * calls["full"] / GIB + PROCESSES * PROCESS_BYTES / GIB),
                    _watched(cache, args) as watched,
                ):
                    keep_row(await row(*watched, args, path))
    _keep(args.out, args.target, rows)


HOLD = """
import sys, torch
free, total = torch.cuda.mem_get_info()
held = torch.empty(max(0, free - int(float(sys.argv[1]) * 2**30)), dtype=torch.uint8, device="cuda")
print(held.numel(), flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def card_of(gib: float) -> Iterator[None]:
    """Inside, another process holds all of the device's memory but so much."""
    command = [sys.executable, "-c", HOLD, str(gib)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdin and holder.stdout
        print(f"another process holds {int(holder.stdout.readline()) / 2**30:.1f} GiB", flush=True)
        try:
            yield
        finally:
            holder.stdin.close()


SECONDS = ("idea, s", "verdict, s", "check, s", "time, s")
HEAD = (
    "problem",
    "status",
    "inputs, GiB",
    *SECONDS,
    "W, GiB",
    "peak, GiB",
    "peak, W",
    "by process, GiB",
    "plan",
    "us",
    "why",
)


def _keep(out: Path, target: str, rows: list[Row]) -> None:
    waits = [one.idea_s for one in rows if one.status == "judged"]
    made = "made by `python -m benchmarks.kernelbench_sizes`"
    counts = ", ".join(f"{status} {count}" for status, count in Counter(one.status for one in rows).items())
    text = f"{len(rows)} problems: {counts}."
    if len(waits) > 1:
        text += f" Seconds until the first idea: p50 {median(waits):.1f}, p95 {quantiles(waits, n=20)[-1]:.1f}."
    keep(
        out,
        f"{STEM}-{target}",
        f"# KernelBench's own sizes before the judge\n\n{machine(target)}; {made}",
        f"{text}\n\n{table(HEAD, [one.cells() for one in rows])}",
        {"rows": [asdict(one) for one in rows]},
    )


def _parser() -> argparse.ArgumentParser:
    parser = arguments(__doc__, "cuda", "cpu")
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--levels", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--first", type=int, default=5)
    parser.add_argument("--every", type=int, default=5)
    parser.add_argument("--only", nargs="+", default=[], metavar="LEVEL/ID")
    parser.add_argument("--at-once", type=int, default=1, help="problems; their peak is then that of all together")
    parser.add_argument("--leave-gib", type=float, help="of the device's memory; another process holds the rest")
    parser.add_argument("--lean", action="store_true", help=f"judge each once more with {LEAN} W free")
    parser.add_argument("--limit-s", type=float, default=120.0)
    parser.add_argument("--budget-s", type=float, default=3600.0)
    return parser


if __name__ == "__main__":
    asyncio.run(main())
