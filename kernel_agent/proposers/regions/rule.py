"""What a rewriting rule is: a function from one call to those in its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernel_agent.proposers.templates.graph import Node, Ref, Spec


@dataclass
class Writer:
    """New calls in place of one; their names begin with its name."""

    node: Node
    calls: list[Node] = field(default_factory=list)

    def call(self, op: str, *args: Any, shape: Sequence[int], dtype: str = "float32", name: str = "") -> Ref:
        """Write one call, and give a mention of it."""
        name = name or f"{self.node.name}_p{len(self.calls) + 1}"
        self.calls.append(Node(name, f"aten.{op}", args, {}, (Spec(tuple(shape), dtype),)))
        return Ref(name)


Rule = Callable[[Node, dict[str, Spec]], list[Node] | None]
