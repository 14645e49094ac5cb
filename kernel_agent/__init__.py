"""KernelAgent: give it PyTorch code, get back a kernel that is proven correct, honestly measured, and faster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernel_agent.agent import KernelAgent

__all__ = ["KernelAgent"]


def __getattr__(name: str) -> Any:
    """Load the agent at first use: `import kernel_agent` alone stays cheap."""
    if name == "KernelAgent":
        from kernel_agent.agent import KernelAgent

        return KernelAgent
    raise AttributeError(name)
