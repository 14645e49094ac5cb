"""Does the profiler name a disease that was put in? On a machine with a GPU and Nsight Compute:

python -m benchmarks.profiling [--keep tests/support/nsight/recorded] [--out benchmarks/results] [--only NAME ...]

Profiles the kernels of benchmarks.diseases through the server, holds each digest against what it should say, keeps the
reports as fixtures, and records passes and seconds of each section set, for one candidate and for four in one process.
Then the ways that can only be tried with a device: the walls, a command, a filter that matches nothing, a section that
there is none of, and the timeline where ncu is hidden. Ends 0 where all came out as it should.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import lzma
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

from benchmarks.diseases import DISEASES, Disease
from benchmarks.serving import ROOT, keep, machine, table

HIDDEN = "from ncu_server.profiler import ncu; from ncu_server import server; ncu.find = lambda: None; server.main()"
HEADS = ["kernel", "bound", "troubles", "line", "ncu's us", "call s"]
SETS, BATCH = ("basic", "standard", "full"), 4
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


@contextlib.asynccontextmanager
async def served(cache: Path, *command: str) -> AsyncIterator[Client]:
    path = os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH")) if p)
    env = dict(os.environ) | {"XDG_CACHE_HOME": str(cache), "PYTHONPATH": path}
    given = StdioServerParameters(command=sys.executable, args=list(command or ("-m", "ncu_server")), env=env)
    async with Client(given) as client:
        yield client


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The answer; a refusal is told under `refused`."""
    answer = await client.call_tool(tool, arguments)
    if answer.is_error or answer.structured_content is None:
        return {"refused": " ".join(getattr(part, "text", "") for part in answer.content)}
    return answer.structured_content


async def diagnosed(client: Client, disease: Disease, faults: Faults, kept: Path | None) -> list[str]:
    """One kernel: what was said against what should be; a row of `HEADS`. Its report is kept in `kept`."""
    began = time.monotonic()
    given = {"candidates": [disease.candidate], "problem": disease.problem, "target": "cuda"}
    answer = await call(client, "profile_kernel", **given)
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
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        raw = (await client.read_resource(f"{report['uri']}/raw")).contents[0]
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
    for words in disease.faults(digest) or [None]:
        faults.unless(words is None, f"{disease.name}: {words or 'told as it should be'}")
    faults.unless(digest["hot_lines"] and digest["hot_lines"][0]["file"], f"{disease.name}: hot lines have a file")
    faults.unless(digest["clock_ghz"], f"{disease.name}: clock {digest['clock_ghz']} GHz")
    faults.unless(not any(NO_WALLS in note for note in report["notes"]), f"{disease.name}: behind walls")
    missing = [m["metric"] for m in digest["missing"]]
    faults.unless(not missing, f"{disease.name}: counters that are missing: {missing or 'none'}")


async def costs(client: Client) -> list[dict[str, Any]]:
    """Passes and seconds of each section set, for one candidate and for several in one process."""
    healthy, found = DISEASES[0], []
    for detail in SETS:
        for count in (1, BATCH):
            # Built before, so that only ncu is timed; a comment makes each a source of its own.
            sources = [f"{healthy.candidate}\n# {i}\n" for i in range(count)]
            given = {"candidates": sources, "problem": healthy.problem, "target": "cuda", "detail": detail}
            answer = await call(client, "profile_kernel", **given)
            reports = [p["report"] for p in answer.get("profiles", ()) if p["report"]]
            entry = {"detail": detail, "candidates": count, "seconds": answer.get("seconds", {}).get("profile_s")}
            entry |= {"collected": reports[0]["collected"] if reports else answer.get("refused")}
            entry |= {"profiled": len(reports), "letters": len(json.dumps(answer))}
            print(json.dumps(entry), flush=True)
            found.append(entry)
    return found


async def edges(client: Client, faults: Faults) -> None:
    """What ncu itself says where it cannot do what is asked, beside the words that ncu_server.profiler.ncu knows."""
    healthy = DISEASES[0]
    program = [sys.executable, "-c", PROGRAM]
    answer = await call(client, "profile_kernel", command=program, detail="basic", timeout_s=120)
    rows = (answer.get("profiles") or [{}])[0].get("report") or {}
    faults.unless(
        len(rows.get("kernels", [])) >= 2,
        f"a command: {len(rows.get('kernels', []))} launches {answer.get('refused', '')}",
    )
    answer = await call(client, "profile_kernel", command=program, kernel_regex="no_such_kernel", detail="basic")
    faults.unless(str(answer.get("refused")).find("NO_KERNEL_MATCH") >= 0, f"no match: {answer.get('refused')}")
    given = {"candidates": [healthy.candidate], "problem": healthy.problem, "target": "cuda"}
    answer = await call(client, "profile_kernel", **given, detail="NoSuchSection")
    print("a section that there is none of:", json.dumps(answer)[:1500])
    crash = healthy.candidate.replace("built.run(x, out)", "built.run(x, out[:1]); torch.cuda.synchronize(); 1 / 0")
    answer = await call(
        client, "profile_kernel", **(given | {"candidates": [healthy.candidate, crash, healthy.candidate + "#"]})
    )
    states = [p["status"] for p in answer.get("profiles", ())]
    faults.unless(states == ["profiled", "run_error", "profiled"], f"one of three crashes: {states}")
    ids = [p["report"]["report_id"] for p in answer.get("profiles", ()) if p["report"]]
    if len(ids) == 2:
        both = await call(client, "compare_reports", before=ids[0], after=ids[1])
        faults.unless(both.get("comparable"), f"the same kernel twice: {both.get('says')}")


async def timeline(cache: Path, faults: Faults) -> None:
    """The rung below, where ncu is hidden from the server."""
    healthy = DISEASES[0]
    async with served(cache, "-c", HIDDEN) as client:
        given = {"candidates": [healthy.candidate], "problem": healthy.problem, "target": "cuda"}
        answer = await call(client, "profile_kernel", **given)
        print(json.dumps(answer)[:3000])
        report = (answer.get("profiles") or [{}])[0].get("report") or {}
        faults.unless(report.get("rung") == "timeline", f"without ncu the rung is {report.get('rung')}")
        found = (report.get("digest") or {}).get("occupancy") or {}
        faults.unless(found.get("registers_per_thread"), f"the timeline tells registers: {found}")


async def run(given: argparse.Namespace) -> int:
    faults, kept = Faults(), Path(given.keep) if given.keep else None
    chosen = [d for d in DISEASES if not given.only or d.name in given.only]
    with tempfile.TemporaryDirectory(prefix="profiling-") as place:
        async with served(Path(place)) as client:
            environment = await call(client, "check_environment")
            print(json.dumps([t for t in environment.get("tools", ()) if t["name"] in ("ncu", "nvcc")]))
            rows = [await diagnosed(client, disease, faults, kept) for disease in chosen]
            spent = [] if given.only else await costs(client)
            if not given.only:
                await edges(client, faults)
        if not given.only:
            await timeline(Path(place), faults)
    text = table(HEADS, rows)
    if spent:
        heads = ["section set", "candidates", "seconds", "collected"]
        text += "\n\n" + table(
            heads, [[str(e[k]) for k in ("detail", "candidates", "seconds", "collected")] for e in spent]
        )
    keep(
        Path(given.out),
        "profiling-cuda",
        machine("cuda"),
        text,
        {"kernels": rows, "costs": spent, "faults": faults.said},
    )
    print(f"{len(faults.said)} faults" + "".join(f"\n  {words}" for words in faults.said))
    return 1 if faults.said else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", metavar="DIR", help="write the reports here, as fixtures")
    parser.add_argument("--out", default="benchmarks/results", metavar="DIR")
    parser.add_argument("--only", nargs="*", choices=[d.name for d in DISEASES])
    sys.exit(asyncio.run(run(parser.parse_args())))


if __name__ == "__main__":
    main()
