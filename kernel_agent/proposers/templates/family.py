"""A family of kernels: the operators that it has at its centre, and what it writes for each target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kernel_agent.proposers.templates.centred import Centred
from kernel_agent.proposers.templates.genes import Space
from kernel_agent.proposers.templates.graph import Graph, Node
from kernel_agent.run.types import Device


@dataclass(frozen=True)
class Kit:
    """What a family has for one target: what can be varied, and the kernel's source for one choice of it."""

    space: Callable[[Centred, Device], Space]
    emit: Callable[[Centred, Mapping[str, object]], str]


@dataclass(frozen=True)
class Family:
    """Operators of ATen by name, the routine around one of them, and a kit for each target.

    `build` raises NotCovered where the operator's arguments, or what stands around it, is not covered.
    """

    operators: tuple[str, ...]
    build: Callable[[Graph, Node], Centred]
    kits: Mapping[str, Kit]
