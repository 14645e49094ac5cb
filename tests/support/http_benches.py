"""Scripted benches that listen on loopback, each in a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.paths import ROOT

SCRIPT = ROOT / "tests" / "support" / "scripted_bench.py"


@dataclass
class HttpBench:
    """One of them: its address, and its process, which can be killed and started again."""

    directory: Path
    options: tuple[str, ...] = ()
    port: int = field(default_factory=lambda: free_port())
    process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def log(self) -> Path:
        return self.directory / f"log-{self.port}"

    def start(self) -> None:
        command = [sys.executable, str(SCRIPT), "--log", str(self.log), "--port", str(self.port), *self.options]
        around = os.environ | {"PYTHONPATH": str(ROOT)}
        with (self.directory / f"said-{self.port}").open("w+") as said:
            self.process = subprocess.Popen(command, stderr=said, stdout=said, cwd=ROOT, env=around)
        listening(self.port, self.process)

    def kill(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()
        self.process = None


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def listening(port: int, process: subprocess.Popen[str]) -> None:
    """Until the process accepts connections there."""
    while process.poll() is None:
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return


@contextmanager
def http_benches(directory: Path, *options: tuple[str, ...]) -> Iterator[list[HttpBench]]:
    """One for each tuple of options."""
    benches = [HttpBench(directory, each) for each in options]
    try:
        for bench in benches:
            bench.start()
        yield benches
    finally:
        for bench in benches:
            bench.kill()
