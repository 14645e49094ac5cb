"""Optimize one example, 3 rounds of 4 ideas without sweeps: the shortest way to see the agent at work.

Not a test for pytest.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kernel_agent.cli.main import main

EXAMPLE = Path(__file__).parent / "examples" / "rms_norm_residual.py"


def arguments() -> list[str]:
    """The command line of `kernel-agent run` that this one stands for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", default=str(EXAMPLE), help="PyTorch code in KernelBench's form")
    parser.add_argument("--target", help="cuda, triton or cpu; by default cuda where there is a device")
    parser.add_argument("--rounds", default="3", help="rounds of ideas")
    given = parser.parse_args()
    target = ["--target", given.target] if given.target else []
    return [
        "run",
        given.file,
        "--num-rounds",
        given.rounds,
        "--branching-factor",
        "4",
        "--implementations",
        "1",
        "--sweep-evaluations",
        "0",
        *target,
    ]


if __name__ == "__main__":
    sys.exit(main(arguments()))
