"""What is told of a module that no template covers: which of its operators stand in the way, and what comes nearest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from kernel_agent.proposers.templates.families import covers
from kernel_agent.proposers.templates.lowering import names

FORMS = {
    "softmax.py": ("softmax", "log_softmax", "_softmax", "_log_softmax", "amax", "max", "logsumexp", "exp"),
    "layer_norm.py": ("layer_norm", "native_layer_norm", "group_norm", "native_group_norm", "var", "var_mean", "std"),
    "rms_norm_residual.py": ("rms_norm", "rsqrt", "mean", "sum", "norm", "linalg_vector_norm", "pow"),
    "pointwise_chain.py": (),
}
"""The examples, and the operators by which a module is like one; the last is like any that is elementwise."""
SHOWN = 5


def nearest(graph: Mapping[str, Any] | None) -> str:
    """In a sentence or two: the operators that no template covers, those that are covered, the nearest example."""
    ops = Counter(names(node["op"])[0] for node in (graph or {"nodes": ()})["nodes"])
    open_, covered = [op for op in ops if not covers(op)], [op for op in ops if covers(op)]
    likeness = {example: sum(ops[op] for op in like) for example, like in FORMS.items()}
    example = max(likeness, key=lambda name: likeness[name]) if any(likeness.values()) else "pointwise_chain.py"
    parts = []
    if open_ and covered:
        parts.append(f"Templates cover {_listed(covered)} of it, not {_listed(open_)}.")
    form = "elementwise operators, reductions, norms, pooling, running sums and lookups of one or several float tensors"
    parts.append(f"They cover {form}; the nearest example is examples/{example}.")
    return " ".join(parts)


def _listed(ops: list[str]) -> str:
    more = f" and {len(ops) - SHOWN} more" if len(ops) > SHOWN else ""
    return ", ".join(ops[:SHOWN]) + more
