"""The files that a run delivers: the best kernel, and the page of what was verified."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kernel_agent.delivery.module import delivered
from kernel_agent.delivery.sheet import Sheet, headed, page
from kernel_agent.errors import DiskError
from kernel_agent.run import tree
from kernel_agent.run.tree import Run
from rag import text_files

BEST, PAGE = "best_kernel.py", "VERIFICATION.md"


def deliver(run: Run, directory: Path, bind: str) -> str:
    """Write the run's best kernel, bound by `bind`, and its page to `directory`; the kernel's text.

    Where nothing beat the original that is delivered as it is, without a page. Raises DiskError where there is no
    room, UsageError where the kernel cannot be bound so.
    """
    winner = tree.winner(run)
    if not winner.idea:
        write(directory / BEST, winner.source)
        return winner.source
    sheet = Sheet(run, winner, bind, ours())
    text = headed(delivered(winner.source, run.problem, run.description, bind), sheet)
    write(directory / BEST, text)
    write(directory / PAGE, page(sheet))
    return text


def write(path: Path, text: str) -> None:
    """Whole or not at all. Raises DiskError where it cannot be written."""
    try:
        text_files.write_whole(path, text)
    except OSError as error:
        raise DiskError(
            f"{path} cannot be written ({error.strerror}); the run is over and its journal safe: "
            f"make room for it, then resume {path.parent}."
        ) from None


def ours() -> str:
    """The version of KernelAgent; empty in a checkout that was not installed."""
    try:
        return version("kernel-agent")
    except PackageNotFoundError:
        return ""
