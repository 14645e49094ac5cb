"""What the library is told: operators, bottleneck, architecture, an idea's own words, a log; never the raw source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kernel_agent.run.brief import Brief
from kernel_agent.run.types import JSON, Description, Idea, Problem, Profile
from kernel_agent.targets import target_of
from rag.retrieval.mechanisms import shown_by
from rag.retrieval.plan import DEPTHWISE, Situation, families_of, operators_in

"""The corpus's word for what a target is written in; its pages for CUDA are about the device that Triton writes for."""

BALANCE = 20.0
"""Operations a byte above which work is bound by arithmetic: float32 peak over memory bandwidth is about 20 on an H100
(67 TFLOP/s over 3.35 TB/s) and 10 to 20 on CPUs."""

GROUPS_FROM = 7
"""Arguments of aten's convolutions where the number of groups is among them; it is the last."""

PRODUCTS = ("matmul", "bmm", "baddbmm", "einsum")
"""Operators that multiply two computed tensors, as attention does."""

SMALL = 1e6
"""Bytes below which, on a GPU, launching takes longer than moving the data."""


MEASURED = {
    "uncoalesced": "dram-bw",
    "bank_conflicts": "smem",
    "spills": "occupancy",
    "low_occupancy": "occupancy",
    "tensor_idle": "tensor",
    "small_grid": "launch",
    "tail": "tail",
    "divergence": "latency",
    "barriers": "sync",
    "global_atomics": "sync",
    "shared_atomics": "sync",
    "double_arithmetic": "compute",
    "narrow_access": "dram-bw",
    "redundant_loads": "l2-bw",
    "integer_division": "compute",
    "instruction_cache": "latency",
    "uneven_sms": "tail",
    "few_eligible": "latency",
    "memory": "dram-bw",
    "compute": "compute",
    "latency": "latency",
    "launch": "launch",
}
"""The corpus's words for what the profiler names: a trouble, or what a kernel is bound by."""

UNITS = {
    "L2": "l2-bw",
    "L1": "smem",
    "load/store pipe": "smem",
    "shared memory and L1 banks": "smem",
    "shared memory and L1 data": "smem",
    "shared memory queue": "smem",
    "tensor pipe": "tensor",
    "tensor and FP64 pipes": "tensor",
}
"""The same for the unit that binds, where it says more than that memory or arithmetic does."""


def bottleneck(brief: Brief) -> str:
    """What limits the parent as the profiler saw it, else what the counted work says, in the corpus's words."""
    return limited_by(brief.description, brief.parent_profile)


def limited_by(work: Description, seen: Profile | None) -> str:
    """The same of any kernel for this work and what the profiler saw of it."""
    if seen is not None:
        for name in (*seen.troubles, seen.unit, seen.bound):
            if word := UNITS.get(name or "") or MEASURED.get(name or ""):
                return word
    if target_of(work.device.target).on_gpu and work.bytes < SMALL:
        return "launch"
    return "compute" if work.flops > BALANCE * work.bytes else "dram-bw"


def situation(brief: Brief, idea: Idea | None = None, attempt: int = 0, log: str = "") -> Situation:
    """What the library is told for one parent's ideas or, with an idea, for its code; `log` is what the judge objects.

    What ideas of this round were given already is served to no sibling again while there is anything else.
    """
    target, known, seen = brief.problem.target, brief.description, brief.parent_profile
    operators = operators_of(brief.problem, known)
    return Situation(
        families=families_of(operators),
        operators=operators,
        dtypes=tuple(dict.fromkeys(_dtypes(known.graph))),
        arch=known.device.arch,
        language=target_of(target).pages,
        bottlenecks=tuple(dict.fromkeys((bottleneck(brief), limited_by(known, None)))),
        signals=seen.findings if seen else (),
        stalls=seen.stalls if seen else (),
        errors=log,
        tried=() if idea else tuple(outcome.title for outcome in (*brief.ancestors, *brief.siblings)),
        idea=f"{idea.title} {idea.transformation or idea.account}" if idea else "",
        served=brief.served,
        turn=attempt,
        has_kernel=brief.parent_idea is not None,
        shown=shown_by(brief.parent.source) if brief.parent_idea else (),
    )


def operators_of(problem: Problem, known: Description) -> tuple[str, ...]:
    """The names of the traced operators, without aten's; of a module that was not traced, what its source names."""
    return tuple(dict.fromkeys(_operators(known.graph))) or operators_in(problem.source)


def _dtypes(graph: JSON | None) -> Iterator[str]:
    for row in (*graph["inputs"], *graph["parameters"]) if graph else ():
        if "dtype" in row:
            yield row["dtype"].removeprefix("torch.")


def _operators(graph: JSON | None) -> Iterator[str]:
    if graph and _attends(graph):
        yield "attention"
    for node in graph["nodes"] if graph else ():
        if name := _plain(node["op"]):
            yield (f"{DEPTHWISE}_" if _in_groups(node) else "") + name


def _plain(operator: str) -> str | None:
    """An ATen operator's name; None of another."""
    match operator.split("."):
        case ["aten", name, *_]:
            return name.strip("_")
    return None


def _attends(graph: JSON) -> bool:
    """Whether it is attention written out: a softmax of a product, multiplied again."""
    behind: dict[str, str] = {}
    for node in graph["nodes"]:
        name, seen = _plain(node["op"]), {behind.get(one, "") for one in _nodes_in((node["args"], node["kwargs"]))}
        if name in PRODUCTS:
            if "softmax" in seen:
                return True
            behind[node["name"]] = "product"
        elif name == "softmax" and "product" in seen:
            behind[node["name"]] = "softmax"
        else:
            behind[node["name"]] = max(seen, default="")
    return False


def _nodes_in(given: Any) -> Iterator[str]:
    if isinstance(given, dict):
        yield from [given["node"]] if isinstance(given.get("node"), str) else _nodes_in(list(given.values()))
    elif isinstance(given, list | tuple):
        for one in given:
            yield from _nodes_in(one)


def _in_groups(node: JSON) -> bool:
    """Whether it is a convolution whose last argument says that channels are by themselves."""
    groups = node["args"][-1] if node["args"] else None
    return "conv" in node["op"] and len(node["args"]) >= GROUPS_FROM and isinstance(groups, int) and groups > 1
