"""Which calls only show a tensor in another way, and what tensor they show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kernel_agent.proposers.templates.graph import Graph, Node, Ref
from kernel_agent.proposers.templates.lowering import EXPANDS, FILLS, RESHAPES, SAME, mentions, names

SLICES = ("slice", "select", "transpose", "permute", "t", "numpy_T", "chunk", "split", "split_with_sizes", "narrow")
COPIES = ("clone", "lift_fresh_copy")
VIEWS = {*RESHAPES, *EXPANDS, *SAME, *SLICES, "dropout"}
CONSTANTS = {*FILLS, "full", "full_like", "scalar_tensor"}


def is_view(node: Node) -> bool:
    """Whether a call computes nothing: what reads its result may as well read its argument."""
    base = names(node.op)[0]
    if base == "dropout":
        return not (node.args[1] and node.args[2])
    return base in VIEWS


def shown(graph: Graph) -> dict[str, str]:
    """For each node the one whose elements it shows, itself where it computes. Constants show themselves."""
    found = {name: name for name in graph.leaves}
    views = {node.name for node in graph.nodes if is_view(node)}
    for node in graph.nodes:
        of = next(iter(mentions(node.args)), None)
        follows = node.name in views or (node.op == "_operator.getitem" and of in views)
        if follows and of is not None:
            found[node.name] = found[of]
            views.add(node.name)
        else:
            found[node.name] = node.name
    return found


def storages(graph: Graph) -> dict[str, str]:
    """For each node the one in whose memory its tensor may lie: as `shown`, but a copy has memory of its own."""
    found = {name: name for name in graph.leaves}
    for node in graph.nodes:
        base, of = names(node.op)[0], next(iter(mentions(node.args)), None)
        alias = is_view(node) or node.op == "_operator.getitem" or is_in_place(node) or base in ("to", "type_as")
        found[node.name] = found[of] if alias and base not in COPIES and of is not None else node.name
    return found


def is_in_place(node: Node) -> bool:
    """Whether a call changes its first argument."""
    base = names(node.op)[0]
    return base.endswith("_") and not base.endswith("__") and base != "detach_"


def users(graph: Graph, of: Iterable[str]) -> dict[str, list[str]]:
    """Who mentions each of these, by name."""
    found: dict[str, list[str]] = {name: [] for name in of}
    for node in graph.nodes:
        for name in dict.fromkeys(mentions([node.args, node.kwargs])):
            found.setdefault(name, []).append(node.name)
    return found


def renamed(argument: Any, names_: Mapping[str, str]) -> Any:
    """An argument with its mentions of some nodes replaced by those of others."""
    if isinstance(argument, Ref):
        return Ref(names_.get(argument.node, argument.node))
    if isinstance(argument, Mapping):
        return {key: renamed(value, names_) for key, value in argument.items()}
    if isinstance(argument, list | tuple):
        return type(argument)(renamed(item, names_) for item in argument)
    return argument
