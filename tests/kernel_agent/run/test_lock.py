"""Who holds a run directory, and how it is asked to stop: with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kernel_agent.errors import Unavailable, UsageError
from kernel_agent.run import lock
from tests.support.paths import ROOT

HOLDS = """
import signal, sys
from pathlib import Path
from kernel_agent.run.lock import take
if sys.argv[2] == "catches":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
with take(Path(sys.argv[1])):
    print("held", flush=True)
    signal.pause()
"""


@contextmanager
def holding(directory: Path, how: str = "catches") -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the directory."""
    command = [sys.executable, "-c", HOLDS, str(directory), how]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_the_holder_is_told_while_it_lives_and_no_longer(tmp_path: Path) -> None:
    assert lock.holder(tmp_path) is None
    with holding(tmp_path) as process:
        assert lock.holder(tmp_path) == process.pid
    assert lock.holder(tmp_path) is None


def test_a_lock_is_taken_once_and_a_refused_taker_leaves_its_holder_named(tmp_path: Path) -> None:
    with holding(tmp_path) as process:
        with pytest.raises(UsageError, match="in use by another process"):
            lock.take(tmp_path)
        assert lock.holder(tmp_path) == process.pid


def test_a_stop_ends_the_holder_by_its_own_handler(tmp_path: Path) -> None:
    with holding(tmp_path) as process:
        lock.stop(tmp_path)
        assert process.wait(30) == 7


def test_a_program_that_does_not_catch_the_signal_is_left_alone(tmp_path: Path) -> None:
    with holding(tmp_path, "leaves it") as process:
        with pytest.raises(Unavailable, match=f"process {process.pid}"):
            lock.stop(tmp_path)
        assert process.poll() is None


@pytest.mark.parametrize("text", ["", "no number", str(2**40), f"{os.getppid()}\n", "1\n"])
def test_who_only_stands_in_the_file_is_never_signalled(tmp_path: Path, text: str) -> None:
    (tmp_path / lock.FILE).write_text(text)
    assert lock.holder(tmp_path) is None
    with pytest.raises(UsageError, match="No run goes on"):
        lock.stop(tmp_path)


def test_a_process_that_has_the_file_open_without_the_lock_does_not_hold_it(tmp_path: Path) -> None:
    with (tmp_path / lock.FILE).open("w") as file:
        file.write(str(os.getpid()))
        file.flush()
        assert lock.holder(tmp_path) is None


def test_a_lock_that_is_held_elsewhere_is_not_the_holder_s(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with holding(tmp_path / "one") as process:
        (tmp_path / "two" / lock.FILE).write_text(str(process.pid))
        assert lock.holder(tmp_path / "two") is None
        os.kill(process.pid, signal.SIGKILL)
