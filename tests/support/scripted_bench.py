"""A measuring server that runs nothing: verdicts and timings follow from the source's hash, each call is logged.

    python tests/support/scripted_bench.py --log FILE [--delay SECONDS] [--die-at N] [--behave WORD] [--port N]
        [--compile-after N] [--card NAME] [--gpus N] [--busy N] [--rendezvous FILE]

`--die-at N` kills the process at the N-th evaluation, with `--behave "die once"` only the first time; with `--behave
"die describing"` at each description, and with `--behave ponder` a description takes for ever. The environment is told
as the names of tools. A candidate may order its verdict by a line `# verdict: wrong` or `# speed: 2.5`; a refusal by
`# refuse: NO_DEVICE`. A problem with a line `# no compile` has no compiled baseline. Where
`--compile-after N` is given, compiled baselines can be timed beside other calls, and come after so many evaluations.
`--card` is what it measures on; of `--gpus` that it tells of, it sees those that CUDA_VISIBLE_DEVICES leaves, and the
first `--busy` are busy. While the file `--rendezvous` is there, whoever holds the device waits for it to go.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import hashlib
import itertools
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError

from mcp_shell.protocol import report
from ncu_server.machine.lease import Lease
from ncu_server.wire.meta import WHOLE, about

EAGER_US, COMPILE_US, TIE = 100.0, 80.0, 0.06
FAILURES = ("build_error", "run_error", "wrong", "timeout", "suspect")
GRAPH = {
    "inputs": [{"name": "x", "shape": [64, 64], "dtype": "float32", "strides": [64, 1]}],
    "parameters": [],
    "nodes": [
        {
            "name": "relu",
            "op": "aten.relu.default",
            "args": [{"node": "x"}],
            "kwargs": {},
            "outputs": [{"shape": [64, 64], "dtype": "float32"}],
        }
    ],
    "outputs": ["relu"],
    "output_structure": "tensor",
}


PEAKS: dict[str, Any] = {
    "copy_gbps": 10.0,
    "peaks": {"copy_gbps": 10.0, "last_cache_bytes": 1e6, "fp32_tflops": 0.1},
    "features": [],
}
UNCOVERED = {
    **GRAPH,
    "nodes": [
        {
            "name": "sort",
            "op": "aten.sort.default",
            "args": [{"node": "x"}],
            "kwargs": {},
            "outputs": [{"shape": [64, 64], "dtype": "float32"}],
        },
    ],
    "outputs": ["sort"],
}


Answer = dict[str, Any]
"""Any object; the tests for malformed answers need the freedom."""


def timing(median_us: float) -> dict[str, Any]:
    low, high = median_us * 0.99, median_us * 1.01
    rest = {"samples": 20, "cache": "cold", "warm_us": median_us * 0.9}
    return {"median_us": median_us, "low_us": low, "high_us": high} | rest


def compared(low: float, high: float) -> str:
    """As the server compares on the CPU: by the whole interval, outside its tie band."""
    return "faster" if low > 1 + TIE else "slower" if high < 1 - TIE else "inconclusive"


def kernel_in(text: str) -> str:
    """The kernel's own source in a file that is delivered; any other text as it is."""
    _, begins, rest = text.partition("# ---- The kernel, as it was judged. ----\n")
    return without_blocks(rest.partition("\n\n# ---- ")[0]) if begins else text


def without_blocks(code: str) -> str:
    """The code as it was before kernel_agent.delivery.source.within put its statements below `with` lines."""
    tree, lines = ast.parse(code), code.split("\n")
    texts = [n for n in ast.walk(tree) if isinstance(n, ast.JoinedStr | ast.Constant) and n.end_lineno]
    kept = {row for node in texts for row in range(node.lineno, node.end_lineno or 0)}
    blocks = [n for n in tree.body if isinstance(n, ast.With) and ast.unparse(n.items[0]) == "_ka_as_judged"]
    for block in reversed(blocks):
        for row in range(block.lineno, block.end_lineno or 0):
            lines[row] = lines[row] if row in kept else lines[row].removeprefix("    ")
        del lines[block.lineno - 1]
    return "\n".join(lines)


def verdict(source: str, baselines: list[str]) -> dict[str, Any]:
    """Two of five sources fail; the others run at 0.5 to 4 times the speed of eager PyTorch, to a millionth."""
    number = int(hashlib.sha256(source.encode()).hexdigest(), 16)
    told, speed = re.search(r"# verdict: (\w+)", source), re.search(r"# speed: ([\d.]+)", source)
    status = "passed" if number % 5 > 1 else FAILURES[number // 5 % len(FAILURES)]
    status = told[1] if told else "passed" if speed else status
    answer: dict[str, Any] = {"status": status, "log": "", "leads": [], "notes": [], "provenance": {}, "versus": []}
    answer |= {"error": None, "timing": None, "stages": {"build_s": 0.0, "check_s": 0.0, "time_s": 0.0}}
    if status != "passed":
        return answer | {"log": f"scripted {status}\nsecond line"}
    speedup = float(speed[1]) if speed else 0.5 + number // 25 % 3_500_000 / 1e6
    times = {"eager": EAGER_US, "compile": COMPILE_US}
    ratios = {name: times[name] / EAGER_US * speedup for name in baselines}
    versus = [
        {
            "baseline": name,
            "timing": timing(times[name]),
            "speedup": {"low": ratio * 0.99, "median": ratio, "high": ratio * 1.01},
            "verdict": compared(ratio * 0.99, ratio * 1.01),
        }
        for name, ratio in ratios.items()
    ]
    return answer | {"error": 0.5, "timing": timing(EAGER_US / speedup), "versus": versus}


def gpus(count: int, busy: int) -> list[dict[str, Any]]:
    """As the server tells of them."""
    told = [
        {
            "index": n,
            "name": "scripted",
            "uuid": f"GPU-{n}",
            "memory_bytes": 1e9,
            "busy": "in use" if n < busy else "",
        }
        for n in range(count)
    ]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return (
        told if visible is None else [gpu for gpu in told if {gpu["uuid"], str(gpu["index"])} & {*visible.split(",")}]
    )


def serve(args: argparse.Namespace) -> MCPServer:
    log, delay, die_at = args.log, args.delay, args.die_at
    behave, compile_after = args.behave, args.compile_after
    mcp = MCPServer("scripted-bench")
    device = Lease(1)
    judged = asyncio.Condition()
    seen = 0

    @mcp.tool()
    async def check_environment(brief: bool = False) -> Answer:
        cpu = {"name": "cpu", "available": True, "device": args.card, "arch": "x86_64", "threads": 2}
        cpu |= {"compiler": None, "reason": None, "fix": None}
        cuda = {"name": "cuda", "available": False, "reason": "no device", "fix": "plug one in"}
        cuda |= {"device": "", "arch": "", "threads": 0, "compiler": None}
        tools = [{"name": name, "path": None, "version": None, "fix": None} for name in os.environ]
        queue = {
            "name": "queue",
            "path": "/q",
            "usable": False,
            "why": "only the user ann may write there",
            "fix": "ask",
        }
        builds = {"name": "builds", "path": "/b", "usable": True, "why": "/a b has ' ' in its path", "fix": None}
        places = [queue, builds]
        newer = {"package": "torch", "version": "99.0", "tried": "1.0 to 2.0", "note": "torch 99.0 is newer than all"}
        return {
            "server": "scripted",
            "python": "3",
            "torch": "99.0",
            "targets": [cpu, cuda],
            "tools": tools,
            "places": places,
            "versions": [newer],
            "host": "scripted-host",
            "gpus": gpus(args.gpus, args.busy),
        }

    @mcp.tool()
    async def describe_problem(
        context: Context, problem: str, target: str, baselines: list[str] | None = None, timeout_s: float = 300
    ) -> Answer:
        if behave == "malformed":
            return {"device": {"target": target}}
        if behave == "die describing":
            os.kill(os.getpid(), signal.SIGKILL)
        if behave == "ponder":
            await context.report_progress(0, None, "tracing")
            await asyncio.sleep(3600)
        refuse(problem)
        with log.with_name(f"{log.name}.described").open("a") as file:
            file.write(f"{baselines}\n")
        asked = baselines is None or "compile" in baselines
        async with judged:
            await judged.wait_for(lambda: not asked or seen >= (compile_after or 0))
        runs = "# no compile" not in problem
        compiled = [{"name": "compile", "timing": timing(COMPILE_US)}] if asked and runs else []
        beside = {"compiles_beside": compile_after is not None}
        return {
            "problem_id": "p1",
            "target": target,
            "device": {"target": target, "name": args.card, "arch": "x86_64", "threads": 2} | PEAKS | beside,
            "graph_uri": f"problem://{'uncovered' if '# uncovered' in problem else 'p1'}/graph",
            "graph_error": None,
            "flops": 4096.0,
            "bytes": 32768.0,
            "limit_us": 3.2,
            "operators": ["relu"],
            "inputs": GRAPH["inputs"],
            "outputs": [],
            "parameters": [],
            "baselines": [{"name": "eager", "timing": timing(EAGER_US)}, *compiled],
            "fair_baseline": "eager" if not compiled else "compile",
            "unmeasured": [] if asked else ["compile"],
            "untimed": {} if runs or not asked else {"compile": "does not run on this problem: scripted"},
            "notes": [] if runs or not asked else ["compile: torch.compile does not run on this problem: scripted"],
        }

    @mcp.resource("problem://{id}/graph")
    def graph(id: str) -> str:
        return json.dumps(UNCOVERED if id == "uncovered" else GRAPH)

    @mcp.tool()
    async def evaluate_kernel(
        candidate: str,
        problem: str,
        target: str,
        context: Context,
        baselines: list[str] | None = None,
        fresh: bool = False,
        timeout_s: float = 120,
        rules: str = "default",
        heeds_compiler: bool = False,
    ) -> Answer:
        nonlocal seen
        seen += 1
        died = log.with_name(log.name + ".died")
        dies = seen == die_at and not (behave == "die once" and died.exists())
        if dies or "# kill the server" in candidate:
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        refuse(candidate)
        counted = itertools.count()

        async def progress(message: str, *, ahead: int | None = None) -> None:
            at = "waiting" if ahead is not None else "device" if message == "timing" else "building"
            await report(context, next(counted), message, about(at, ahead))  # type: ignore[arg-type]

        await progress("building")
        async with device.alone(progress):
            await progress("timing")
            await asyncio.sleep(delay)
            while args.rendezvous and args.rendezvous.exists():
                await asyncio.sleep(0.01)
        entry = {"source": candidate, "fresh": fresh, "baselines": baselines, "pid": os.getpid()}
        entry |= {"gpu": os.environ.get("CUDA_VISIBLE_DEVICES")}
        with log.open("a") as file:
            file.write(json.dumps(entry) + "\n")
        async with judged:
            judged.notify_all()
        if "# no compile" in problem and "compile" in (baselines or []):
            return verdict("# verdict: run_error", ["eager"])
        return verdict(kernel_in(candidate), baselines or ["eager"])

    @mcp.tool()
    async def verify_module(source: str, problem: str, target: str, timeout_s: float = 600) -> Answer:
        with log.with_name(f"{log.name}.verified").open("a") as file:
            file.write(f"{os.getpid()}\n")
        broken = "# breaks alone" in source
        names = ("builds",) if broken else ("builds", "agrees", "state_dict", "to", "compile")
        checks = [{"name": name, "ok": not broken, "why": "no nvcc" if broken else ""} for name in names]
        return {"checks": checks, "torch": "none", "seconds": 0.0}

    @mcp.tool()
    async def profile_kernel(
        candidates: list[str], problem: str, target: str, context: Context, timeout_s: float = 300
    ) -> Answer:
        if target == "cpu" and "# profiler" not in problem:
            raise ToolError("NO_PROFILER: the cpu target has no counters; look at the times")
        for candidate in candidates:
            refuse(candidate)
        with log.open("a") as file:
            file.write(json.dumps({"profiled": candidates, "pid": os.getpid()}) + "\n")
        found = [
            profiled(candidate, whole=bool((context.request_context.meta or {}).get(WHOLE))) for candidate in candidates
        ]
        return {"profiles": found, "refused": [], "seconds": {}, "notes": []}

    return mcp


def profiled(source: str, whole: bool) -> dict[str, Any]:
    if "# crashes" in source:
        return {"target": "candidate", "status": "run_error", "log": "Traceback\nRuntimeError: no", "report": None}
    name = hashlib.sha256(source.encode()).hexdigest()[:12]
    return {"target": "candidate", "status": "profiled", "log": "", "report": report_of(name, whole)}


def report_of(name: str, whole: bool) -> dict[str, Any]:
    """A server's report; among others it is told without its hot lines."""
    place = {"file": "cuda.cu", "line": 9, "candidate_line": 4, "text": "y[i] = x[i];"}
    hot = place | {"samples": 90, "share_pct": 90.0, "stalls": {"long_scoreboard": 80.0}}
    digest = {
        "name": "relu",
        "duration_us": 12.5,
        "clock_ghz": None,
        "bound": "memory",
        "why": "DRAM is busy",
        "findings": [{"trouble": "uncoalesced", "words": "half is not needed", "place": place}],
        "occupancy": {"achieved_pct": 50.0, "limiter": "registers", "waves": None},
        "stalls": [{"reason": "long_scoreboard", "share_pct": 77.0, "waits_for": "memory"}],
        "rules": [{"title": "Coalesce", "section": None, "speedup_pct": 30.0, "scope": "global", "text": "Do."}],
        "hot_lines": [hot] if whole else [],
        "doubts": [],
    }
    return {"report_id": name, "uri": None, "rung": "counters", "digest": digest, "static": [], "notes": []}


def refuse(source: str) -> None:
    if found := re.search(r"# refuse: (\w+)", source):
        raise ToolError(f"{found[1]}: so it was ordered.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--die-at", type=int)
    parser.add_argument("--behave", default="well")
    parser.add_argument("--port", type=int, help="serve over HTTP")
    parser.add_argument("--compile-after", type=int)
    parser.add_argument("--card", default="scripted")
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--rendezvous", type=Path)
    args = parser.parse_args()
    if args.behave == "not start":
        raise SystemExit("scripted: refuses to start")
    if args.behave == "hang":
        signal.pause()
    bench = serve(args)
    if args.port:
        bench.run("streamable-http", host="127.0.0.1", port=args.port)
    else:
        bench.run("stdio")
