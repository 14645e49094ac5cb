"""Kernels without a model: row programs written from the corpus and evolved over their genes."""

from kernel_agent.proposers.templates.nearest import nearest
from kernel_agent.proposers.templates.proposer import Templates

__all__ = ["Templates", "nearest"]
