"""Our faults, each one clear sentence that says what to do.

KernelAgentError
  UsageError                 what the user gave us cannot be used           exit 2
    ProblemError             the PyTorch source itself is at fault          exit 2
  Unavailable                something this machine or account lacks        exit 4
    DiskError                what is kept cannot be written or read         exit 4
    ServerError              the measuring server failed or is missing      exit 4
    ProviderError            the model's endpoint refused or failed         exit 4
      Unusable               its replies cannot be used; a run goes on      exit 4
    Unprofiled               the server has no profiler; a run goes on      exit 4
    Waiting                  nobody has answered yet (--no-wait)            exit 4
  BudgetSpent                a hard limit was reached                       exit 5

`evaluate` ends with exit 6 where the kernel did not pass, which is no fault of ours. Nor is `NotCovered`: whoever asks
the templates for a kernel and gets it delivers the original.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import ClassVar

THEIRS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    MemoryError,
    NameError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What a caller's own code, such as a module's constructor, may raise."""


def shown(value: object, limit: int = 200) -> str:
    """What somebody handed over as it stands in a sentence: one short line, also where it cannot be shown at all."""
    try:
        text = " ".join(repr(value).split())
    except THEIRS:
        text = f"an object of type {type(value).__name__}"
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def meant(given: str, known: Iterable[str]) -> str:
    """The known name that is nearest to one that is not, as a question; nothing where none is near."""
    near = nearest(given.casefold(), known)
    return f" Did you mean {near}?" if near else ""


def nearest(given: str, known: Iterable[str], least: float = 0.6) -> str | None:
    """The known name that is most alike, where one is by the ratio `least` of difflib."""
    return next(iter(get_close_matches(given, list(known), 1, least)), None)


class KernelAgentError(Exception):
    """The root of all faults that are ours; `exit_code` is what the command line returns."""

    exit_code: ClassVar[int] = 1


class UsageError(KernelAgentError):
    exit_code = 2


class ProblemError(UsageError):
    pass


class NotCovered(Exception):  # noqa: N818
    """The templates have no kernel for what they were asked; `kept` says of each part of a module why."""

    def __init__(self, reason: str, kept: Mapping[str, str] | None = None) -> None:
        self.kept = dict(kept or {})
        super().__init__(reason)


class Unavailable(KernelAgentError):  # noqa: N818
    exit_code = 4


class DiskError(Unavailable):
    pass


class ServerError(Unavailable):
    pass


class ProviderError(Unavailable):
    pass


class Unusable(ProviderError):  # noqa: N818
    """`fault` is what happened without what to do about it: what a brief tells, the same on every machine."""

    def __init__(self, fault: str, remedy: str = "") -> None:
        self.fault = fault
        super().__init__(f"{fault}: {remedy}" if remedy else fault)


class Unprofiled(Unavailable):
    pass


class Waiting(Unavailable):
    """All that could go on has gone on; now the run needs replies to `prompts`, files that a person answers."""

    def __init__(self, prompts: Iterable[str]) -> None:
        self.prompts = tuple(dict.fromkeys(prompts))
        count = "1 prompt waits" if len(self.prompts) == 1 else f"{len(self.prompts)} prompts wait"
        super().__init__(
            f"{count} for a reply: {', '.join(self.prompts)}; answer each in the .reply.md beside it, "
            "then resume the run."
        )


class BudgetSpent(KernelAgentError):  # noqa: N818
    exit_code = 5


class MistypedSetting(UserWarning):
    """A variable that looks like a setting and is none."""
