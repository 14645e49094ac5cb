"""What benchmarks share: a real server over stdio, programs that end with them, and where results go."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

from ncu_server.machine.tickets import Tickets
from ncu_server.sandbox.supervisor import Ended, Supervisor
from ncu_server.targets import TARGETS

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
CANNOT = 3
"""The exit code of a benchmark that cannot be had on this machine."""


def arguments(doc: str | None, *targets: str) -> argparse.ArgumentParser:
    """What reads a benchmark's arguments: `--out`, where results go, and `--target`, of which the first is usual."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if targets:
        parser.add_argument("--target", choices=targets, default=targets[0])
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="DIR")
    return parser


def need(target: str) -> None:
    """End this program with one sentence and exit code 3 where this machine has not what a target takes."""
    probe = TARGETS[target].probe()
    if not probe.available:
        print(
            f"this benchmark needs the target {target!r}, which is not available here: {probe.reason}", file=sys.stderr
        )
        sys.exit(CANNOT)


async def ended(
    command: Sequence[str],
    place: Path | None = None,
    environment: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    heard: Callable[[bytes], None] | None = None,
) -> Ended:
    """Run a program in a folder to its end; `heard` gets all that it prints as it comes, errors too.

    Nothing that it started outlives it, `timeout_s` or this process. Raises TimeoutError.
    """
    return await Supervisor(place, environment=environment).run(command, timeout_s, heard, merged=True)


def turns(target: str) -> Tickets:
    """The queue in which the servers of this machine wait for a target's device."""
    return Tickets(TARGETS[target].probe().uuid or TARGETS[target].device)


@contextlib.contextmanager
def alone(target: str) -> Iterator[None]:
    """A target's device for this process alone, as a server has it while it times."""
    with asyncio.Runner() as runner:
        held = turns(target).hold(True)
        runner.run(held.__aenter__())
        try:
            yield
        finally:
            runner.run(held.__aexit__(None, None, None))


def shown(part: bytes) -> None:
    """What a program prints, printed."""
    sys.stdout.buffer.write(part)
    sys.stdout.flush()


@dataclass(frozen=True, slots=True)
class Verdict:
    """One answer of evaluate_kernel and what the client's clock says of it, in seconds since some moment."""

    result: dict[str, Any]
    began: float
    ended: float

    @property
    def latency_s(self) -> float:
        return self.ended - self.began


class Judge:
    """The server's tools as functions."""

    def __init__(self, client: Client, target: str) -> None:
        self.client, self._target = client, target

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The answer; a refusal is told under `refused`."""
        answer = await self.client.call_tool(tool, arguments)
        if answer.is_error or answer.structured_content is None:
            return {"refused": " ".join(getattr(part, "text", "") for part in answer.content)}
        content: dict[str, Any] = answer.structured_content
        return content

    async def judge(self, candidate: str, problem: str, **more: Any) -> Verdict:
        """Raises RuntimeError where the server refuses the call."""
        began = time.monotonic()
        given = {"candidate": candidate, "problem": problem, "target": self._target, "timeout_s": 600} | more
        answer = await self.call("evaluate_kernel", **given)
        if "refused" in answer:
            raise RuntimeError(f"the server refuses: {answer['refused']}")
        return Verdict(answer, began, time.monotonic())


@contextlib.asynccontextmanager
async def served(target: str, *command: str) -> AsyncIterator[Judge]:
    """A server with an empty cache of its own; `command` are Python's arguments where they are not the usual ones."""
    passed_on = {k: v for k, v in os.environ.items() if not k.endswith("_KEY")}
    path = os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH")) if p)
    with tempfile.TemporaryDirectory(prefix="judge-") as cache:
        env = passed_on | {"XDG_CACHE_HOME": cache, "PYTHONPATH": path}
        arguments = list(command or ("-m", "ncu_server"))
        given = StdioServerParameters(command=sys.executable, args=arguments, env=env, cwd=cache)
        async with Client(given) as client:
            yield Judge(client, target)


def machine(target: str) -> str:
    """Device, versions and date in one line."""
    cores = len(os.sched_getaffinity(0))
    device = _model() if target == "cpu" else _card()
    return (
        f"{device}, {cores} cores, target {target}, torch {version('torch')}, Python {platform.python_version()}, "
        f"commit {_commit()}, {date.today()}"
    )


def _card() -> str:
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    name, driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0].split(", ")
    return f"{name}, driver {driver}"


def _model() -> str:
    rows = Path("/proc/cpuinfo").read_text().splitlines()
    return next((r.partition(":")[2].strip() for r in rows if r.startswith("model name")), platform.machine())


def _commit() -> str:
    asked = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *rows])


def problems(checkout: Path, level: int, first: int = 1, every: int = 1) -> list[Path]:
    """The files of a level of KernelBench by number, or every so many-th from the `first`."""
    paths = sorted((checkout / "KernelBench" / f"level{level}").glob("*.py"), key=_number)
    return [path for path in paths if _number(path) % every == first % every]


def _number(path: Path) -> int:
    return int(path.name.partition("_")[0])


def keep(out: Path, stem: str, title: str, text: str, found: dict[str, Any]) -> None:
    """Write the table and the numbers behind it, and print the table."""
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{stem}.md").write_text(f"{title}\n\n{text}\n")
    (out / f"{stem}.json").write_text(json.dumps({"title": title} | found, indent=1) + "\n")
    print(f"\n{title}\n\n{text}")
