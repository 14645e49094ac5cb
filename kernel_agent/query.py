"""What to ask the library: operators, bottleneck and architecture, and an idea's own words; never the raw source."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernel_agent.types import JSON, Brief, Idea
from rag import Query

FAMILIES = (
    ("attention", r"scaled_dot_product|attention"),
    ("loss", r"loss|cross_entropy|kl_div"),
    ("softmax", r"softmax"),
    ("norm", r"norm"),
    ("conv", r"conv"),
    ("pooling", r"pool"),
    ("scan", r"cum(sum|prod|max|min)|logcumsumexp"),
    ("sort", r"sort|topk|kthvalue|median"),
    ("gemm", r"(^|_)(mm|bmm|addmm|baddbmm|matmul|linear|einsum|dot|mv)$"),
    ("gather", r"gather|scatter|index|embedding|take"),
    ("reduction", r"^(sum|mean|amax|amin|max|min|prod|var|std|var_mean|argmax|argmin|any|all|logsumexp)$"),
    ("layout", r"permute|transpose|^t$|view|reshape|cat|stack|clone|contiguous|expand|slice|select|split|pad"),
)
"""Operator families in the corpus's words, by the ATen operator's name; what fits none is pointwise."""

LANGUAGES = {"cpu": "cpp", "triton": "cuda"}
"""The corpus's word for what a target is written in; its pages for CUDA are about the device that Triton writes for."""

BALANCE = 20.0
"""Operations a byte above which work is bound by arithmetic: float32 peak over memory bandwidth is about 20 on an H100
(67 TFLOP/s over 3.35 TB/s) and 10 to 20 on CPUs."""

SMALL = 1e6
"""Bytes below which, on a GPU, launching takes longer than moving the data."""


def families(graph: JSON | None) -> tuple[str, ...]:
    """The families of a graph's operators, each once, in the order of their first appearance."""
    return tuple(dict.fromkeys(_family(operator) for operator in _operators(graph)))


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
    "memory": "dram-bw",
    "compute": "compute",
    "latency": "latency",
    "launch": "launch",
}
"""The corpus's words for what the profiler names: a trouble, or what a kernel is bound by."""


def bottleneck(brief: Brief) -> str:
    """What limits the parent as the profiler saw it, else what the counted work says, in the corpus's words."""
    if (seen := brief.parent_profile) is not None:
        for name in (*seen.troubles, seen.bound):
            if name in MEASURED:
                return MEASURED[name]
    work = brief.description
    if brief.problem.target != "cpu" and work.bytes < SMALL:
        return "launch"
    return "compute" if work.flops > BALANCE * work.bytes else "dram-bw"


def query(brief: Brief, idea: Idea | None = None) -> Query:
    """The question for one parent's ideas or, with an idea, for its code."""
    limit, target = bottleneck(brief), brief.problem.target
    operators = dict.fromkeys(_operators(brief.description.graph))
    own = [idea.title, idea.reasoning] if idea else [brief.parent_idea.title] if brief.parent_idea else []
    return Query(
        text=" ".join([limit, *operators, brief.description.device.arch, *own]),
        arch=brief.description.device.arch,
        language=LANGUAGES.get(target, target),
        families=families(brief.description.graph),
        bottleneck=limit,
    )


def _operators(graph: JSON | None) -> Iterator[str]:
    for node in graph["nodes"] if graph else ():
        match node["op"].split("."):
            case ["aten", name, *_]:
                yield name.strip("_")


def _family(operator: str) -> str:
    return next((family for family, pattern in FAMILIES if re.search(pattern, operator)), "pointwise")
