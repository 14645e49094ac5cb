"""How much sooner a pool of several GPUs is done with a suite than one GPU: the same problems, the same candidates.

    python -m benchmarks.pool_scaling PATH [--ids IDS] [--level L] [--gpus 2] [--ideas N] [--target T] [--out DIR]

First one problem is played on every GPU, so that the peaks of each are measured and the server's own parts are built;
then the suite with all GPUs, then with one, by templates, for one round. One GPU goes last: whatever the first left in
a cache helps it. Prints a line for each, with the seconds that the suite lasted, the kernels that were judged and the
share of the time that each device was busy, and the ratio. `--out` keeps the suites' directories.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.serving import ROOT, ended, machine, need, shown
from kernel_agent.run.journal import read as run_in
from kernel_agent.suite.store import read
from kernel_agent.suite.types import State
from ncu_server.targets import TARGETS


@dataclass(frozen=True, slots=True)
class Arm:
    """What one suite came to on so many GPUs."""

    gpus: int
    seconds: float
    judged: int
    done: int
    problems: int

    def __str__(self) -> str:
        rate = f"{self.judged / self.seconds * 60:.1f} kernels a minute"
        return f"{self.gpus} GPUs: {self.done} of {self.problems} problems in {self.seconds:.0f} s, {rate}"


def played(path: Path, directory: Path, gpus: int, given: Sequence[str]) -> Arm:
    """Play a suite on so many GPUs of this machine; this program ends where it does not end well."""
    command = [sys.executable, "-m", "kernel_agent", "suite", "run", str(path), "--run-directory", str(directory)]
    command += ["--provider", "templates", "--rounds", "1", "--implementations", "1", "--sweep-evaluations", "0"]
    command += ["--no-experience", "--no-report", "--retrieval", "lexical", "--gpus", str(gpus), *given]
    if code := asyncio.run(ended(command, ROOT, heard=shown)).code:
        sys.exit(f"the suite in {directory} ended with exit code {code}")
    suite = read(directory)
    done = [one for one in suite.problems if suite.outcome(one).state is State.DONE]
    judged = sum(len(run_in(one.directory(directory)).evaluations) for one in done)
    return Arm(gpus, suite.seconds, judged, len(done), len(suite.problems))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--ids")
    parser.add_argument("--level")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--ideas", type=int, default=8)
    parser.add_argument("--target", choices=list(TARGETS), default="cuda")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    need(args.target)
    chosen = [word for name in ("ids", "level") if (given := getattr(args, name)) for word in (f"--{name}", given)]
    given = [*chosen, "--target", args.target, "--ideas", str(args.ideas)]
    with TemporaryDirectory() as folder:
        out = args.out or Path(folder)
        warm = ["--target", args.target, "--ideas", "1"]
        played(ROOT / "examples", out / "warm", args.gpus, warm)
        arms = [played(args.path, out / f"gpus-{count}", count, given) for count in (args.gpus, 1)]
    print(f"{machine(args.target)}\n" + "\n".join(map(str, arms)))
    several, one = arms
    print(f"{one.seconds / several.seconds:.2f} times as fast on {args.gpus} GPUs as on one")
    if args.out:
        found = {f"{arm.gpus} GPUs": arm.seconds for arm in arms}
        (args.out / "pool-scaling.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
