"""How templates cut a module into regions, as a run records it: what they write kernels for, and what stays PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

SHOWN = 6
"""Reasons that are told; the record holds all."""

HELP = (
    "A model could write it: set an API key (OPENAI_API_KEY, GEMINI_API_KEY, ANTHROPIC_API_KEY or OPENROUTER_API_KEY) "
    "in the environment or .env, or answer the prompts yourself with --provider manual; a kernel that you have already "
    "is judged by `python -m kernel_agent evaluate`."
)


@dataclass(frozen=True, slots=True)
class KeptRegion:
    """A part of a module, by the name of its call in the trace, that stays PyTorch's call, and why."""

    part: str
    reason: str


@dataclass(frozen=True, slots=True)
class Regions:
    """How many kernels templates write for a module, and what stays PyTorch's. Where they write none, `reason` says it
    of the whole module, such as one that cannot be traced."""

    kernels: int
    kept: tuple[KeptRegion, ...] = ()
    reason: str = ""

    @property
    def covers(self) -> bool:
        """Whether there is any kernel."""
        return self.kernels > 0

    def told(self) -> Iterator[str]:
        """What stays PyTorch's and why, a line for each reason."""
        parts: dict[str, list[str]] = {}
        for one in self.kept:
            parts.setdefault(one.reason, []).append(one.part)
        for reason, names in list(parts.items())[:SHOWN]:
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            yield f"{', '.join(names[:SHOWN])}{more}: {reason}"
        if len(parts) > SHOWN:
            yield f"and {len(parts) - SHOWN} more reasons"

    @property
    def account(self) -> str:
        """All of it as one sentence."""
        return " ".join([self.reason, *self.told()])
