"""Stand-ins for Nsight Compute, its reader and a GPU, and the counters of launches on GPUs of several kinds.

The counters were read off reports of real launches, to five digits; those that no digest reads are left out.
"""

import json
import os
from pathlib import Path

from mcp import StdioServerParameters

from ncu_server.profiler.facts import KernelFacts, LineFact
from tests.support.measuring import server_parameters

HERE = Path(__file__).parent
LAUNCHES: dict[str, dict[str, float | str]] = json.loads((HERE / "bin" / "launches.json").read_text())


def launch(which: str, lines: list[LineFact] | None = None, **changed: float | str | None) -> KernelFacts:
    """A recorded launch; metrics given by our own name of a row are changed, or left out where they are None."""
    from ncu_server.profiler.metrics import ROWS

    known = dict(LAUNCHES[which])
    for row, value in changed.items():
        for name in ROWS[row].counters:
            known.pop(name, None)
        if value is not None:
            known[ROWS[row].counters[0]] = value
    return KernelFacts(name=which, metrics=known, lines=lines or [])


def parameters(cache: Path, gpu: bool = True) -> StdioServerParameters:
    """A server that finds the stand-ins; without `gpu` only the reader of reports."""
    found = server_parameters(cache)
    assert found.env is not None
    paths = [str(HERE / "reader"), found.env["PYTHONPATH"]]
    programs = [str(HERE / "bin")] if gpu else []
    found.env |= {
        "PYTHONPATH": os.pathsep.join(paths),
        "PATH": os.pathsep.join([*programs, found.env["PATH"]]),
    }
    return found
