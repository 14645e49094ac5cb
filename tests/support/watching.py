"""`watch` and runs to be watched, as real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.paths import ROOT
from tests.support.scripted_run import BENCH, MODEL


def agent_command(*arguments: str, where: Path) -> subprocess.Popen[str]:
    """A command of the agent under way in a folder, with nothing of this machine's settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KERNEL_AGENT_")}
    around = kept | {
        "PYTHONPATH": str(ROOT),
        "XDG_CACHE_HOME": str(where / "cache"),
        "XDG_DATA_HOME": str(where / "data"),
    }
    command = [sys.executable, "-m", "kernel_agent", *arguments]
    return subprocess.Popen(command, cwd=where, env=around, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def scripted_search(where: Path, name: str = "kept", delay: float = 0.2, *more: str) -> subprocess.Popen[str]:
    """A run by templates against the scripted server, each verdict of which takes `delay` seconds."""
    (where / "relu.py").write_text(MODEL)
    server = f"python {BENCH} --log {where / 'bench.log'} --delay {delay}"
    settings = ["--target", "cpu", "--provider", "templates", "--retrieval", "lexical", "--rounds", "3", "--ideas", "4"]
    return agent_command("run", "relu.py", "--run-directory", name, *settings, "--server", server, *more, where=where)


def scripted_suite(where: Path, delay: float = 0.2) -> subprocess.Popen[str]:
    """A suite of four problems in runs/many, each played as `scripted_search` plays its one."""
    (where / "problems").mkdir()
    for number in range(4):
        (where / "problems" / f"{number}_relu.py").write_text(f"{MODEL}# {number}\n")
    server = f"python {BENCH} --log {where / 'bench.log'} --delay {delay}"
    settings = ["--target", "cpu", "--provider", "templates", "--retrieval", "lexical", "--rounds", "2", "--ideas", "4"]
    return agent_command(
        *("suite", "run", "problems", "--run-directory", "runs/many", "--minutes", "30", "--problems-at-once", "2"),
        *settings,
        *("--server", server),
        where=where,
    )


@contextmanager
def watching(directory: Path, *more: str) -> Iterator[str]:
    """The address, with its token, at which a directory is watched."""
    process = agent_command("watch", str(directory.absolute()), *more, where=directory.parent)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(30)
        if process.stdout:
            process.stdout.close()


def printed_until(process: subprocess.Popen[str], word: str, count: int = 1) -> None:
    """Reads what a run prints until a word has come so often."""
    assert process.stdout is not None
    seen: list[str] = []
    for row in process.stdout:
        seen.append(row)
        count -= word in row
        if not count:
            return
    raise AssertionError("".join(seen))
