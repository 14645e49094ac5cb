"""Does the profiler name each disease, and its line? On a machine with a GPU and Nsight Compute:

python -m benchmarks.diseases [--out DIR] [--only NAME ...]

Profiles each kernel through the server, a few at once so that they are built while others are profiled; prints kernel,
findings and line; keeps in DIR what it found (`diseases-cuda.md`, `.json`) and in DIR/recorded the reports, which the
tests read once they lie in tests/support/nsight/recorded. Ends 0 where all came out as it should.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from mcp import MCPError

from benchmarks.diseases import DISEASES, Disease
from benchmarks.profiling import HEADS, Faults, diagnosed, served
from benchmarks.serving import keep, machine, table

AT_ONCE = 4


async def run(given: argparse.Namespace) -> int:
    faults, out, turn = Faults(), Path(given.out), asyncio.Semaphore(AT_ONCE)
    chosen = [d for d in DISEASES if not given.only or d.name in given.only]
    with tempfile.TemporaryDirectory(prefix="diseases-") as place:
        async with served(Path(place)) as client:

            async def one(disease: Disease) -> list[str]:
                async with turn:
                    try:
                        return await diagnosed(client, disease, faults, out / "recorded")
                    except MCPError as fault:  # the others are still worth their time on the card
                        faults.unless(False, f"{disease.name}: {fault}")
                        return [disease.name, "", "", "", "", ""]

            rows = await asyncio.gather(*(one(disease) for disease in chosen))
    text = table(HEADS, rows)
    keep(out, "diseases-cuda", machine("cuda"), text, {"kernels": rows, "faults": faults.said})
    print(f"{len(faults.said)} faults" + "".join(f"\n  {words}" for words in faults.said))
    return 1 if faults.said else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="benchmarks/results", metavar="DIR")
    parser.add_argument("--only", nargs="*", choices=[d.name for d in DISEASES])
    sys.exit(asyncio.run(run(parser.parse_args())))


if __name__ == "__main__":
    main()
