"""Rules that say a call as another one that kernels are written for, or that larger devices are better at."""

from __future__ import annotations

from math import prod

from kernel_agent.proposers.regions.rule import Writer
from kernel_agent.proposers.templates.graph import Node, Ref, Spec
from kernel_agent.proposers.templates.lowering import names

POOLS = {f"{kind}_pool{d}d": d for kind in ("max", "avg") for d in (1, 2, 3)}
ADAPTIVE = {
    **{f"adaptive_avg_pool{d}d": d for d in (1, 2, 3)},
    **{f"adaptive_max_pool{d}d_values": d for d in (1, 2, 3)},
}


def whole_pool(node: Node, known: dict[str, Spec]) -> list[Node] | None:
    """A pooling with one window a plane that covers it is a mean or a maximum over it."""
    base = names(node.op)[0]
    dims = POOLS.get(base) or ADAPTIVE.get(base)
    if dims is None or not isinstance(node.args[0], Ref) or node.kwargs or prod(node.spec.shape[-dims:]) != 1:
        return None
    shape = known[node.args[0].node].shape
    if base in POOLS and not _covers(node, shape[-dims:]):
        return None
    op = "amax.default" if "max" in base else "mean.dim"
    w, spec = Writer(node), node.spec
    w.call(op, node.args[0], list(range(-dims, 0)), True, shape=spec.shape, dtype=spec.dtype, name=node.name)
    return w.calls


def _covers(node: Node, plane: tuple[int, ...]) -> bool:
    """Whether a window is the plane itself, all else being as it is without being said."""
    window = node.args[1] if isinstance(node.args[1], list | tuple) else [node.args[1]]
    window = list(window) * (len(plane) if len(window) == 1 else 1)
    padding = node.args[3] if len(node.args) > 3 else 0
    padded = any(padding) if isinstance(padding, list | tuple) else padding
    return list(plane) == window and not padded and len(node.args) <= 4
