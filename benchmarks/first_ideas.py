"""What the templates try first on KernelBench, without a device: each problem's first ideas, written and compiled.

python -m benchmarks.first_ideas CHECKOUT --kept DIR [--levels 1 2 3] [--every 5 --first 1] [--ideas 4] [--only 1/91]

A problem is described as by a server with an H200: traced at its full size (fake tensors where the model allows them),
with the device, its rates and what it allows of arithmetic from tests/kernel_agent/proposers/recorded.json; where a
problem is not recorded there, its products may be computed as those of one that is (see LIKE). The candidates of the
first `--whole` ideas are built by the worker's own builder for sm_90a; of the others what runs on the device is
compiled, by the same flags. `--kept` holds the graphs and a JSON file a problem; what it holds is not made again.

Bytes: `plan` is what our kernels and PyTorch's calls move, with cuDNN's changes of layout; `eager` is that of the
module's calls one by one, with such changes too; `own` is what goes in and comes out; `fused` is a bound on what a
compiler needs that fuses all but products, convolutions, attention and recurrences: the tensors between such calls,
each once. Times are predicted: the longer of bytes at the rate of a copy and operations at the rate of their
arithmetic, and a launch for each step.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import re
import resource
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.coverage import traced
from benchmarks.plan_bytes import bounds, copied_us, predicted
from benchmarks.serving import problems, table
from kernel_agent.errors import NotCovered, Unusable
from kernel_agent.proposers.regions.rewrite import CONVOLUTIONS
from kernel_agent.proposers.regions.works import Regional, Work
from kernel_agent.proposers.templates.arithmetic import offered
from kernel_agent.proposers.templates.forms import is_product
from kernel_agent.proposers.templates.graph import Node, parse
from kernel_agent.proposers.templates.lowering import names
from kernel_agent.proposers.templates.proposer import Templates
from kernel_agent.run.brief import Brief
from kernel_agent.run.precision import ErrorUnit, Way
from kernel_agent.run.types import Description, Device, Idea, Problem, Trial

RECORDED = Path("tests/kernel_agent/proposers/recorded.json")
LIKE = {"convolution": "2/19", "product": "2/9", "": "1/21"}  # of a recorded problem with such calls; 2/19 takes TF32
OFTEN = "incompatible redefinition for option 'optimize'"  # load_inline's -O2 before the candidate's -O3
SECONDS = 400  # of one compiler process


def described(name: str, graph: Mapping[str, Any], recorded: Mapping[str, Any]) -> Description:
    """What a server with the recorded device would say of a problem, such as 1/21: problem 21 of level 1."""
    nodes = parse(graph).nodes
    kind = next(
        (kind for kind in ("convolution", "product") if any(_is(kind, node) for node in nodes)),
        "",
    )
    known = recorded["problems"].get(name) or recorded["problems"][LIKE[kind]]
    ways = tuple(Way(way, error, fits, None) for way, error, fits in known["ways"])
    units = tuple(ErrorUnit("output", "as drawn", 1.0, 1.0, 1.0, allowed) for allowed in known["allowed"])
    empty = Description(Device(**recorded["device"]), graph, None, 1.0, 1.0, None, {})
    return replace(empty, arithmetic=known["arithmetic"], ways=ways, precision=units)


def _is(kind: str, node: Node) -> bool:
    if kind == "convolution":
        return names(node.op)[0] in CONVOLUTIONS
    return is_product(node) or names(node.op)[0] == "scaled_dot_product_attention"


def _bare(source: str) -> str:
    """What tells one kernel from another: all but its title."""
    return re.sub(r"(?m)^# kernel: .*$", "", source)


def judge(name: str, path: Path, args: argparse.Namespace, recorded: Mapping[str, Any]) -> dict[str, Any]:
    """All that is found of a problem, as JSON."""
    row: dict[str, Any] = {"problem": f"{name}_{path.stem.partition('_')[2]}"}
    found = _graph(path, args.kept / "graphs")
    if "error" in found:
        return row | {"error": found["error"]}
    graph = found["graph"]
    row |= {"nodes": len(graph["nodes"]), **bounds(parse(graph))}
    began, of = time.monotonic(), described(name, graph, recorded)
    row["offers"] = list(known.rates) if (known := offered(of)) else []
    try:
        templates = Templates(of)
    except NotCovered as fault:
        return row | {"kernels": 0, "error": str(fault), "reasons": fault.kept, "proposed_s": time.monotonic() - began}
    brief = Brief(Problem("case", path.read_text(), "cuda"), of, 1, Trial(None, 0, 0, None, ""), None, None)
    ideas = asyncio.run(templates.ideas(brief, args.ideas))
    row |= {"kernels": templates.regions.kernels, "proposed_s": time.monotonic() - began}
    row["reasons"] = {one.part: one.reason for one in templates.regions.kept}
    sources = list[str]()
    row["ideas"] = [_idea(templates, brief, idea, sources, args, name.replace("/", "_")) for idea in ideas]
    return row


def _graph(path: Path, kept: Path) -> dict[str, Any]:
    kept.mkdir(parents=True, exist_ok=True)
    file = kept / f"{path.parent.name}-{path.stem}.json"
    if not file.exists():
        file.write_text(json.dumps(traced(path)))
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def _idea(
    templates: Templates, brief: Brief, idea: Idea, sources: list[str], args: argparse.Namespace, stem: str
) -> dict[str, Any]:
    """What comes of an idea; its source joins those of the ideas before it."""
    began, one = time.monotonic(), {"title": idea.title}
    try:
        source = asyncio.run(templates.write(brief, idea, 0))
    except Unusable as fault:
        return one | {"error": str(fault)}
    told = _told(templates._work, dict(idea.change or {}), brief.description)
    found: dict[str, Any] = {**one, "written_s": time.monotonic() - began, "lines": source.count("\n"), **told}
    if _bare(source) in sources:
        found["same_as"] = sources.index(_bare(source)) + 1
    sources.append(_bare(source))
    if "same_as" not in found and len(sources) <= args.built:
        found |= build(source, args.kept / "build", whole=len(sources) <= args.whole)
    if args.sources:
        place = args.kept / "sources" / f"{stem}_{len(sources)}.py"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(source)
    return found


def _told(work: Work, genes: Mapping[str, int | str], of: Description) -> dict[str, Any]:
    """The plan of one idea, in numbers."""
    if not isinstance(work, Regional):
        moved = work.outlook()[1]
        us = copied_us(moved, of.device)
        return {"launched": 1, "calls": [], "plan": moved, "us": us}
    found = predicted(work.plan(genes), of.device, of.arithmetic == "tf32")
    return {"launched": found.kernels, "calls": list(found.calls), "plan": found.plan, "us": found.us}


def build(source: str, place: Path, whole: bool) -> dict[str, Any]:
    """Build a candidate as the worker does, or only what runs on the device, in a process of its own: seconds of a
    core, what ptxas says, and the fault if any."""
    shutil.rmtree(place, ignore_errors=True)
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        said, fault, seconds = pool.apply(_build if whole else _build_device, (source, str(place)))
    return {"built_s": seconds, "whole": whole, "fault": fault, **ptxas(said)}


def _build_device(source: str, place: str) -> tuple[str, str, float]:
    """The code for the device alone, by the flags that load_inline and the worker give."""
    import tvm_ffi.cpp
    from tvm_ffi.libinfo import find_include_path

    Path(place).mkdir(parents=True, exist_ok=True)
    said = list[subprocess.CompletedProcess[str]]()

    def load_inline(name: str, cuda_sources: str, extra_cuda_cflags: Sequence[str], **_: Any) -> None:
        file = Path(place) / f"{name}.cu"
        file.write_text(cuda_sources)
        flags = ["-std=c++17", "-O2", "-gencode=arch=compute_90a,code=sm_90a", *extra_cuda_cflags, "-lineinfo"]
        command = ["nvcc", *flags, "-Xptxas=-v", f"-I{find_include_path()}", "-cubin", str(file), "-o", os.devnull]
        said.append(subprocess.run(command, capture_output=True, text=True, check=False))

    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    with patch.object(tvm_ffi.cpp, "load_inline", load_inline):
        exec(compile(source, "candidate", "exec"), {"__name__": "candidate"})
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    text = "\n".join(one.stdout + one.stderr for one in said)
    return text, text[-3000:] if any(one.returncode for one in said) else "", used.ru_utime + used.ru_stime


def _build(source: str, place: str) -> tuple[str, str, float]:
    import tvm_ffi

    from ncu_server.targets import cuda
    from ncu_server.targets.target import Probe
    from ncu_server.worker.builder import Builder

    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    os.environ |= cuda.environment(Probe(True, "NVIDIA H200", "sm_90", 0, shutil.which("nvcc")))
    os.environ["TVM_FFI_DISABLE_TORCH_C_DLPACK"] = "1"  # which tvm_ffi would build first, and nothing is called here
    builder, fault = Builder(), ""
    try:
        with patch.object(
            tvm_ffi, "load_module", lambda *args, **kwargs: None
        ):  # what is built for a GPU stays unloaded
            builder.build([], source, place)
    except BaseException as error:  # noqa: BLE001  a candidate may raise anything
        fault = f"{type(error).__name__}: {error}"[-3000:]
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return "\n".join(builder.words([])), fault, used.ru_utime + used.ru_stime


def ptxas(said: str) -> dict[str, Any]:
    """Kernels with spills or a stack, the most registers, and warnings."""
    kernels = re.findall(
        r"Function properties for (\S+)\s+(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads",
        said,
    )
    spills = {name: [int(n) for n in rest] for name, *rest in kernels if any(int(n) for n in rest)}
    registers = max(map(int, re.findall(r"Used (\d+) registers", said)), default=0)
    warnings = list(
        dict.fromkeys(line.strip() for line in said.splitlines() if "warning" in line.lower() and OFTEN not in line)
    )
    return {"compiled": len(kernels), "registers": registers, "spills": spills, "warnings": warnings[:6]}


def cells(row: Mapping[str, Any]) -> list[str]:
    """A problem's row of the table."""
    if not row.get("ideas"):
        reason = row.get("error", "") + "; ".join(dict.fromkeys(row.get("reasons", {}).values()))
        return [row["problem"], "0", *[""] * 7, reason[:120]]
    first, ideas = row["ideas"][0], row["ideas"]
    kept = ", ".join(dict.fromkeys(names(op)[0] for op in first.get("calls", [])))
    built = [one["built_s"] for one in ideas if "built_s" in one]
    faults = [f"idea {n} {what}" for n, one in enumerate(ideas, 1) for what in _faults(one)]
    gigabytes = [f"{row[key] / 1e9:.3g}" for key in ("own", "fused")] + [
        f"{first.get('plan', 0) / 1e9:.3g}",
        f"{row['eager'] / 1e9:.3g}",
    ]
    return [
        row["problem"],
        str(first.get("launched", 0)),
        f"{len(first.get('calls', []))}: {kept}"[:60] if kept else "0",
        *gigabytes,
        f"{first.get('us', 0) / 1e3:.3g}",
        f"{row['proposed_s']:.1f}",
        f"{max(built, default=0):.0f}",
        "; ".join(faults)[:200],
    ]


def _faults(one: Mapping[str, Any]) -> Iterator[str]:
    if one.get("error") or one.get("fault"):
        yield f"does not build ({(one.get('error') or one['fault'])[:60]})"
    if one.get("same_as"):
        yield f"is idea {one['same_as']}"
    if one.get("spills"):
        yield f"spills in {len(one['spills'])}"
    if one.get("warnings"):
        yield f"{len(one['warnings'])} warnings"


HEAD = "problem, kernels, PyTorch's calls, own GB, fused GB, plan GB, eager GB, ms predicted, s to propose, s to build"


def main() -> None:
    """Judge what is not kept yet, then print the table."""
    args = _parser().parse_args()
    recorded = json.loads(args.recorded.read_text())
    rows = []
    for level in args.levels:
        for path in problems(args.checkout, level, args.first, args.every):
            name = f"{level}/{path.stem.partition('_')[0]}"
            if args.only and name not in args.only:
                continue
            file = args.kept / "rows" / f"{name.replace('/', '_')}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            if args.again or not file.exists():
                file.write_text(json.dumps(judge(name, path, args, recorded), indent=1))
            rows.append(json.loads(file.read_text()))
            print(" | ".join(cells(rows[-1])), flush=True)
    print(f"\n{table([*HEAD.split(', '), 'notes'], [cells(row) for row in rows])}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--kept", type=Path, required=True)
    parser.add_argument("--recorded", type=Path, default=RECORDED)
    parser.add_argument("--levels", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--every", type=int, default=5)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--ideas", type=int, default=4)
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--again", action="store_true", help="make again what is kept, but for the graphs")
    parser.add_argument("--whole", type=int, default=1, help="how many of the ideas the worker's builder builds")
    parser.add_argument("--built", type=int, default=4, help="how many of the ideas are compiled")
    parser.add_argument("--sources", action="store_true", help="keep the candidates' sources too")
    return parser


if __name__ == "__main__":
    main()
