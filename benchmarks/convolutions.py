"""Convolutions of KernelBench by the templates beside eager PyTorch and torch.compile, outside the judge.

python -m benchmarks.convolutions CHECKOUT [--only 2/54 ...] [--variants 2] [--together 3] [--seconds 120] [--out DIR]

Of each problem: eager, torch.compile's default mode, the plan with channels last, and our convolution with each of its
first variants. All kernels are compiled first. Then each problem runs in a process of its own, a few together; one at a
time measures, in turn with the servers of this machine, so that what fails stops nothing else. Times are medians of 15
calls between events. Errors are the largest, over the root mean square of the output of eager PyTorch without TF32.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import torch

from benchmarks.serving import ROOT, alone, arguments, ended, keep, machine, problems, table
from kernel_agent.proposers.regions.works import Regional, work_of
from kernel_agent.proposers.templates.arithmetic import offers
from kernel_agent.proposers.templates.genes import Genes
from kernel_agent.run.precision import Way
from kernel_agent.run.types import Device
from ncu_server.worker.tracing.graph import graph

PEAKS = {"fp32_tflops": 51.3, "tf32_tflops": 411.6, "bf16_tflops": 786.9}
H200 = Device("cuda", "NVIDIA H200", "sm_90", 0, 4286.0, build_arch="9.0a", peaks=PEAKS)  # as its server measured it
WAYS = [Way(f"one {name} product", error, "inside", None) for name, error in (("float16", 5.0), ("bfloat16", 40.0))]
ONLY = ("2/1", "2/2", "2/7", "2/16", "2/26", "2/54", "2/71", "2/96", "2/100", *(f"1/{n}" for n in (50, 54, 56, 61, 63)))
ONLY += tuple(f"1/{n}" for n in (66, 67, 71, 76, 79, 80, 81, 87))
CALLS = 15
HEAD = ("problem", "plan", "ms", "over eager", "over compile", "error", "predicted ms", "kernels, us")


def ms(call: Callable[[], object], cuda: bool) -> float:
    """The median of what a call takes, between events; on a CPU one call, which is no time worth keeping."""
    if not cuda:
        call()
        return 1.0
    for _ in range(3):
        call()
    taken = []
    for _ in range(CALLS):
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began.record()
        call()
        ended.record()
        torch.cuda.synchronize()
        taken.append(began.elapsed_time(ended))
    return float(median(taken))


def launched(call: Callable[[], object]) -> str:
    """The four kernels of a call that take most, with microseconds, as torch's profiler sees them."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(3):
            call()
        torch.cuda.synchronize()
    rows = sorted(seen.key_averages(), key=lambda row: -row.self_device_time_total)
    return ", ".join(f"{short(row.key)} {row.self_device_time_total / 3:.0f}" for row in rows[:4])


def short(name: str) -> str:
    """The function's own name of a kernel's, 40 characters of it at most."""
    bare = name.replace("(anonymous namespace)", "").removeprefix("void ").partition("(")[0].partition("<")[0]
    return bare.rpartition("::")[2][:40]


def loaded(source: str) -> ModuleType:
    """A problem or candidate as a module; a candidate's kernels are compiled, or found compiled."""
    module = ModuleType("problem")
    exec(compile(source, "problem", "exec"), module.__dict__)
    return module


def traced(source: str) -> dict[str, Any]:
    """The graph of a problem, of whose tensors only shapes exist."""
    with torch.device("meta"):
        module = loaded(source)
        model = module.Model(*module.get_init_inputs())
        found: dict[str, Any] = graph(model, (module.get_inputs(), {}))["graph"]
    return found


def candidates(source: str, variants: int) -> dict[str, tuple[str, float]]:
    """The sources to compare by what they are, each with the milliseconds that are predicted of its layout."""
    work = work_of(traced(source), H200, offers(H200, WAYS, True))
    assert isinstance(work, Regional)
    first, named = work.space.starts[0], {gene.name: gene for gene in work.space.genes}
    layouts = named["layout"].values if "layout" in named else work._layouts
    chosen = dict[str, tuple[Genes, str]]()
    if "last" in layouts:
        chosen["channels last"] = {**first, "layout": "last"}, "last"
    for choice in named["convolution"].choices[:variants] if "kernel" in layouts else ():
        chosen[choice.phrase] = {**first, "layout": "kernel", "convolution": choice.value}, "kernel"
    known = {label: ({k: v for k, v in genes.items() if k in named}, at) for label, (genes, at) in chosen.items()}
    return {
        label: (work.write(source, genes), work._moved(layout) / 4286.0 / 1e6)
        for label, (genes, layout) in known.items()
    }


def write(folder: Path, variants: int) -> None:
    """Write a problem's candidates, and compile each, so that its kernels are found compiled later."""
    found = dict[str, Any]()
    for number, (label, (text, predicted)) in enumerate(
        candidates((folder / "problem.py").read_text(), variants).items()
    ):
        file = folder / f"{number}.py"
        file.write_text(text)
        found[label] = {"file": file.name, "predicted": predicted}
        (folder / "candidates.json").write_text(json.dumps(found))
        said(folder / f"{number}.failed", [str(file)])


def said(failed: Path, command: Sequence[str], seconds: float = 600) -> None:
    """Run Python; if it fails, write why into a file."""
    try:
        done = asyncio.run(ended([sys.executable, *command], ROOT, timeout_s=seconds))
    except TimeoutError:
        failed.write_text(f"it took more than {seconds:.0f} s")
    else:
        if done.code:
            failed.write_text(done.output.decode(errors="replace")[-600:])


class Bench:
    """One problem on a device: its rows are written one by one, so that those before a failure are kept."""

    def __init__(self, folder: Path, device: str) -> None:
        self.folder, self.device, self.rows = folder, device, list[dict[str, Any]]()
        self.cuda = device == "cuda"
        self.problem = loaded((folder / "problem.py").read_text())
        with alone(device):
            self._prepare(device)

    def _prepare(self, device: str) -> None:
        with torch.device(device):
            torch.manual_seed(0)
            self.model = self.problem.Model(*self.problem.get_init_inputs()).to(device)
            self.inputs = [x.to(device) if isinstance(x, torch.Tensor) else x for x in self.problem.get_inputs()]
        with torch.backends.cudnn.flags(allow_tf32=False):
            self.exact = self.model(*self.inputs)
        self.rms = float(self.exact.double().square().mean().sqrt())

    def measure(self, plan: str, make: Callable[[], Callable[..., Any]], predicted: float = 0.0) -> None:
        """Time a plan and find its error."""
        row: dict[str, Any] = {"plan": plan, "predicted": predicted}
        try:
            call = make()
            with alone(self.device):  # all of it: whatever runs beside it would share the device in slices of time
                output = call(*self.inputs)
                row["error"] = max(
                    float((got.double() - want.double()).abs().max()) / self.rms
                    for got, want in zip(output.split(1), self.exact.split(1), strict=True)
                )
                del output
                row["ms"] = ms(lambda: call(*self.inputs), self.cuda)
                row["kernels"] = launched(lambda: call(*self.inputs)) if self.cuda else ""
        except (RuntimeError, ValueError, AssertionError, ImportError) as fault:
            row["failed"] = f"{type(fault).__name__}: {fault}"[:300]
            traceback.print_exc()
        self.rows.append(row)
        (self.folder / "rows.json").write_text(json.dumps(self.rows))

    def candidate(self, file: str) -> Callable[..., Any]:
        """A candidate with the problem's parameters."""
        made = loaded((self.folder / file).read_text()).ModelNew(*self.problem.get_init_inputs())
        made.load_state_dict(self.model.state_dict())
        return made.cuda() if self.cuda else made  # type: ignore[no-any-return]


def one(folder: Path, device: str) -> None:
    """Measure all plans of a problem."""
    torch.set_grad_enabled(False)
    bench = Bench(folder, device)
    bench.measure("eager", lambda: bench.model)
    for plan, of in kept(folder / "candidates.json", {}).items():
        if not (folder / of["file"]).with_suffix(".failed").exists():
            bench.measure(plan, lambda file=of["file"]: bench.candidate(file), of["predicted"])  # type: ignore[misc]
    bench.measure("torch.compile", lambda: torch.compile(bench.model))


def kept(file: Path, empty: Any) -> Any:
    """What a file holds, if it was written."""
    return json.loads(file.read_text()) if file.exists() else empty


def told(name: str, folder: Path) -> list[list[str]]:
    """The table's rows of a problem."""
    rows = kept(folder / "rows.json", [])
    times = {row["plan"]: row["ms"] for row in rows if "ms" in row}
    found = list[list[str]]()
    for row in rows:
        if "ms" not in row:
            found.append([name, row["plan"], "failed", "", "", row["failed"], "", ""])
            continue
        over = (f"{times[base] / row['ms']:.2f}x" if base in times else "" for base in ("eager", "torch.compile"))
        predicted = f"{row['predicted']:.3f}" if row["predicted"] else ""
        found.append(
            [name, row["plan"], f"{row['ms']:.3f}", *over, f"{row['error']:.1e}", predicted, row.get("kernels", "")]
        )
    faults = ((file.stem, " ".join(file.read_text().split())[-300:]) for file in folder.glob("*.failed"))
    return found + [[name, plan, "failed", "", "", fault, "", ""] for plan, fault in faults]


def run(name: str, folder: Path, device: str, seconds: float) -> list[list[str]]:
    """A problem's rows, from a process of its own."""
    command = ["-m", "benchmarks.convolutions", "--one", str(folder), "--target", device]
    said(folder / "run.failed", command, seconds)
    rows = told(name, folder)
    print("\n".join(" | ".join(row) for row in rows), flush=True)
    return rows


def parsed() -> argparse.Namespace:
    parser = arguments(__doc__, "cuda", "cpu")
    parser.add_argument("checkout", type=Path, nargs="?", metavar="CHECKOUT")
    parser.add_argument("--only", nargs="+", default=ONLY, metavar="LEVEL/ID")
    parser.add_argument("--variants", type=int, default=2)
    parser.add_argument("--together", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def listed(checkout: Path, only: Sequence[str]) -> dict[str, Path]:
    """The problems' files by level and number, in the order asked for."""
    levels = {name.partition("/")[0] for name in only}
    paths = {f"{n}/{path.name.partition('_')[0]}": path for n in levels for path in problems(checkout, int(n))}
    return {name: paths[name] for name in only}


def compared(args: argparse.Namespace) -> None:
    """Write, compile and measure, and keep the table."""
    chosen = listed(args.checkout, args.only)
    with tempfile.TemporaryDirectory() as made:
        folders = {name: Path(made) / name.replace("/", "-") for name in chosen}
        for name, path in chosen.items():
            folders[name].mkdir()
            shutil.copy(path, folders[name] / "problem.py")
        writes = ["-m", "benchmarks.convolutions", "--variants", str(args.variants), "--write"]
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            list(pool.map(lambda folder: said(folder / "write.failed", [*writes, str(folder)]), folders.values()))
        with ThreadPoolExecutor(args.together) as pool:
            rows = pool.map(lambda name: run(name, folders[name], args.target, args.seconds), chosen)
            found = [row for some in rows for row in some]
    title = "# Convolutions by wgmma beside torch.compile"
    head = f"{title}\n\n{machine(args.target)}; made by `python -m benchmarks.convolutions`"
    keep(args.out, f"convolutions-{args.target}", head, table(HEAD, found), {"rows": found})


def main() -> None:
    os.environ.setdefault("TVM_FFI_CUDA_ARCH_LIST", "9.0a")  # wgmma assembles for no other
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    args = parsed()
    if args.write:
        write(args.write, args.variants)
    elif args.one:
        one(args.one, args.target)
    else:
        compared(args)


if __name__ == "__main__":
    main()
