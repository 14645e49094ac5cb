"""Does the profiler name each disease, and its line? On a machine with a GPU and Nsight Compute:

python -m benchmarks.diseases [--out DIR] [--only NAME ...] [--costs]

Profiles each kernel through the server, a few at once so that they are built while others are profiled; prints kernel,
findings and line; keeps in DIR what it found (`diseases-cuda.md`, `.json`) and in DIR/recorded the reports, which the
tests read once they lie in tests/support/nsight/recorded. With `--costs` also passes and seconds of each section set,
for one candidate and for four in one process, and the ways that can only be tried with a device: the walls, a command,
a filter that matches nothing, a section that there is none of, and the timeline where ncu is hidden. Ends 0 where all
came out as it should, 3 where there is no GPU.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import lzma
import sys
import time
from pathlib import Path
from typing import Any

from mcp import MCPError

from benchmarks.diseases import DISEASES, Disease
from benchmarks.serving import Judge, arguments, keep, machine, need, served, table

AT_ONCE = 4
HIDDEN = "from ncu_server.profiler import ncu; from ncu_server import server; ncu.find = lambda: None; server.main()"
HEADS = ["kernel", "bound", "troubles", "line", "ncu's us", "call s"]
SETS, BATCH = ("basic", "standard", "full"), 4
COSTS = ("detail", "candidates", "seconds", "collected")
NO_WALLS = "profiled without walls"
PROGRAM = "import torch; x = torch.ones(1 << 20, device='cuda'); (x * 2).sum().item(); torch.cuda.synchronize()"


class Faults:
    """What did not come out as it should."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def unless(self, holds: object, words: str) -> None:
        print(f"{'ok   ' if holds else 'FAULT'} {words}", flush=True)
        if not holds:
            self.said.append(words)


async def diagnosed(server: Judge, disease: Disease, faults: Faults, kept: Path) -> list[str]:
    """One kernel: what was said against what should be; a row of `HEADS`. Its report is kept there."""
    began = time.monotonic()
    given = {"candidates": [disease.candidate], "problem": disease.problem, "target": "cuda"}
    answer = await server.call("profile_kernel", **given)
    took = time.monotonic() - began
    row = (answer.get("profiles") or [{}])[0]
    report = row.get("report") or {}
    refused = answer.get("refused") or ""
    faults.unless(report.get("rung") == "counters", f"{disease.name}: read from counters in {took:.1f} s {refused}")
    if not report.get("digest"):
        print(json.dumps(answer)[:3000])
        return [disease.name, str(row.get("status")), "", "", "", f"{took:.1f}"]
    digest = report["digest"]
    _held(disease, digest, report, faults)
    kept.mkdir(parents=True, exist_ok=True)
    raw = (await server.client.read_resource(f"{report['uri']}/raw")).contents[0]
    whole = base64.b64decode(getattr(raw, "blob", ""))
    (kept / f"{disease.name}.ncu-rep.xz").write_bytes(await asyncio.to_thread(lzma.compress, whole, preset=9))
    print(json.dumps(digest), flush=True)
    named = ", ".join(f["trouble"] for f in digest["findings"]) or "none"
    return [
        disease.name,
        digest["bound"],
        named,
        _blamed(disease, digest),
        f"{digest['duration_us']:.1f}",
        f"{took:.1f}",
    ]


def _blamed(disease: Disease, digest: dict[str, Any]) -> str:
    """The line that the disease's own finding blames, or the caller of the hottest line where that is asked for."""
    places = [f["place"] for f in digest["findings"] if f["trouble"] == disease.trouble and f["place"]]
    if disease.inlined and digest["hot_lines"]:
        places = [digest["hot_lines"][0]["called_from"]]
    return f"`{places[0]['text']}`" if places and places[0] else ""


def _held(disease: Disease, digest: dict[str, Any], report: dict[str, Any], faults: Faults) -> None:
    said = disease.faults(digest)
    faults.unless(not said, f"{disease.name}: {'; '.join(said) or 'told as it should be'}")
    faults.unless(digest["hot_lines"] and digest["hot_lines"][0]["file"], f"{disease.name}: hot lines have a file")
    faults.unless(digest["clock_ghz"], f"{disease.name}: clock {digest['clock_ghz']} GHz")
    faults.unless(not any(NO_WALLS in note for note in report["notes"]), f"{disease.name}: behind walls")
    missing = [m["metric"] for m in digest["missing"]]
    faults.unless(not missing, f"{disease.name}: counters that are missing: {missing or 'none'}")


async def costs(server: Judge) -> list[dict[str, Any]]:
    """Passes and seconds of each section set, for one candidate and for several in one process."""
    healthy, found = DISEASES[0], []
    for detail in SETS:
        for count in (1, BATCH):
            # Built before, so that only ncu is timed; a comment makes each a source of its own.
            sources = [f"{healthy.candidate}\n# {i}\n" for i in range(count)]
            given = {"candidates": sources, "problem": healthy.problem, "target": "cuda", "detail": detail}
            answer = await server.call("profile_kernel", **given)
            reports = [p["report"] for p in answer.get("profiles", ()) if p["report"]]
            entry = {"detail": detail, "candidates": count, "seconds": answer.get("seconds", {}).get("profile_s")}
            entry |= {"collected": reports[0]["collected"] if reports else answer.get("refused")}
            entry |= {"profiled": len(reports), "letters": len(json.dumps(answer))}
            print(json.dumps(entry), flush=True)
            found.append(entry)
    return found


async def edges(server: Judge, faults: Faults) -> None:
    """What ncu itself says where it cannot do what is asked, beside the words that ncu_server.profiler.ncu knows."""
    healthy = DISEASES[0]
    program = [sys.executable, "-c", PROGRAM]
    answer = await server.call("profile_kernel", command=program, detail="basic", timeout_s=120)
    rows = (answer.get("profiles") or [{}])[0].get("report") or {}
    faults.unless(
        len(rows.get("kernels", [])) >= 2,
        f"a command: {len(rows.get('kernels', []))} launches {answer.get('refused', '')}",
    )
    answer = await server.call("profile_kernel", command=program, kernel_regex="no_such_kernel", detail="basic")
    faults.unless(str(answer.get("refused")).find("NO_KERNEL_MATCH") >= 0, f"no match: {answer.get('refused')}")
    given = {"candidates": [healthy.candidate], "problem": healthy.problem, "target": "cuda"}
    answer = await server.call("profile_kernel", **given, detail="NoSuchSection")
    print("a section that there is none of:", json.dumps(answer)[:1500])
    crash = healthy.candidate.replace("built.run(x, out)", "built.run(x, out[:1]); torch.cuda.synchronize(); 1 / 0")
    answer = await server.call(
        "profile_kernel", **(given | {"candidates": [healthy.candidate, crash, healthy.candidate + "#"]})
    )
    states = [p["status"] for p in answer.get("profiles", ())]
    faults.unless(states == ["profiled", "run_error", "profiled"], f"one of three crashes: {states}")
    ids = [p["report"]["report_id"] for p in answer.get("profiles", ()) if p["report"]]
    if len(ids) == 2:
        both = await server.call("compare_reports", before=ids[0], after=ids[1])
        faults.unless(both.get("comparable"), f"the same kernel twice: {both.get('says')}")


async def timeline(faults: Faults) -> None:
    """The rung below, where ncu is hidden from the server."""
    healthy = DISEASES[0]
    async with served("cuda", "-c", HIDDEN) as server:
        given = {"candidates": [healthy.candidate], "problem": healthy.problem, "target": "cuda"}
        answer = await server.call("profile_kernel", **given)
        print(json.dumps(answer)[:3000])
        report = (answer.get("profiles") or [{}])[0].get("report") or {}
        faults.unless(report.get("rung") == "timeline", f"without ncu the rung is {report.get('rung')}")
        found = (report.get("digest") or {}).get("occupancy") or {}
        faults.unless(found.get("registers_per_thread"), f"the timeline tells registers: {found}")


async def run(given: argparse.Namespace) -> int:
    faults, out, turn = Faults(), given.out, asyncio.Semaphore(AT_ONCE)
    chosen = [d for d in DISEASES if not given.only or d.name in given.only]
    async with served("cuda") as server:

        async def one(disease: Disease) -> list[str]:
            async with turn:
                try:
                    return await diagnosed(server, disease, faults, out / "recorded")
                except MCPError as fault:  # the others are still worth their time on the card
                    faults.unless(False, f"{disease.name}: {fault}")
                    return [disease.name, "", "", "", "", ""]

        rows = await asyncio.gather(*(one(disease) for disease in chosen))
        spent = await costs(server) if given.costs else []
        if given.costs:
            await edges(server, faults)
            await timeline(faults)
    text = table(HEADS, rows)
    if spent:
        text += "\n\n" + table(["section set", *COSTS[1:]], [[str(e[k]) for k in COSTS] for e in spent])
    keep(out, "diseases-cuda", machine("cuda"), text, {"kernels": rows, "costs": spent, "faults": faults.said})
    print(f"{len(faults.said)} faults" + "".join(f"\n  {words}" for words in faults.said))
    return 1 if faults.said else 0


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--only", nargs="*", choices=[d.name for d in DISEASES])
    parser.add_argument("--costs", action="store_true", help="what a profile costs too, and what needs a device")
    given = parser.parse_args()
    need("cuda")
    sys.exit(asyncio.run(run(given)))


if __name__ == "__main__":
    main()
