"""Kernels without a model: row programs written from the corpus and evolved over their genes."""

from kernel_agent.templates.nearest import nearest
from kernel_agent.templates.proposer import Templates

__all__ = ["Templates", "nearest"]
