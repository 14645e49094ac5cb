"""`python -m ncu_server`: serve on stdio or over HTTP, or `selftest`."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__" and not sys.flags.safe_path and Path.cwd() != Path(__file__).resolve().parents[1]:
    del sys.path[0]  # the working folder, where `-m` looks first: a mcp.py there is not ours

from ncu_server import server
from ncu_server.errors import Refusal
from ncu_server.machine.machine import probed
from ncu_server.selftest import cases, run
from ncu_server.targets import TARGETS
from ncu_server.tools import http


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve an MCP client; `selftest` ends 0 only where every verdict is as expected, 2 where none can be given."""
    given = _parser().parse_args(arguments)
    try:
        if given.command is not None:
            sys.exit(asyncio.run(_selftest(given)))
        if not given.http:
            server.main()
            return
        _serve_http(given)
    except Refusal as refusal:
        print(refusal.sentence, file=sys.stderr)
        sys.exit(2)


def _serve_http(given: argparse.Namespace) -> None:
    # Taken out of the environment, so that no program started from here is handed it.
    token = http.required(os.environ.pop(http.TOKEN_VARIABLE, None))
    with http.bound(given.host, given.port) as listening:
        for line in http.announcement(given.host, listening.getsockname()[1]):
            print(line, file=sys.stderr, flush=True)
        http.serve(http.application(server.make_server(token=token), given.host, given.allow_host), listening)


def _parser() -> argparse.ArgumentParser:
    about = "Serves MCP clients, on stdin and stdout or over HTTP, and runs the code that they send."
    parser = argparse.ArgumentParser("ncu_server", description=about)
    web_help = f"serve over HTTP instead of stdio; every client must give the token that {http.TOKEN_VARIABLE} holds"
    parser.add_argument("--http", action="store_true", help=web_help)
    parser.add_argument("--host", default="127.0.0.1", help="with --http: address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8931, help="with --http: port (default: 8931; 0 takes a free one)")
    names = "with --http: a further name that clients may call this machine by, such as a proxy's; may be given again"
    parser.add_argument("--allow-host", metavar="NAME", action="append", default=[], help=names)
    words = "judge the shipped cheats and honest kernels on this machine; ends 0 where all come out as they should"
    test = parser.add_subparsers(dest="command").add_parser("selftest", help=words, description=words)
    test.add_argument("names", nargs="*", metavar="NAME", help="cases by name or shell pattern; all by default")
    test.add_argument("--target", choices=sorted(TARGETS), help="only this one; by default all that this machine has")
    test.add_argument("--rules", choices=("default", "strict"), default="default", help="rules to judge by")
    test.add_argument("--json", action="store_true", help="one JSON object a line instead of the table")
    test.add_argument("--cases", type=Path, default=cases.HERE, help="a directory of cases of your own")
    return parser


async def _selftest(given: argparse.Namespace) -> int:
    wanted = run.chosen(cases.cases(given.cases), given.target, given.names)
    absent = {t: probed(t).reason for t in {c.target for c in wanted} if t in TARGETS and not probed(t).available}
    absent |= {c.target: "this version has no such target" for c in wanted if c.target not in TARGETS}
    here = [c for c in wanted if c.target not in absent]
    say = print if not given.json else _silent
    for target, reason in sorted(absent.items()):
        print(f"{target}: not judged here: {reason}", file=sys.stderr)
    if not here:
        return 2
    say(run.HEAD)
    failed = 0
    async for outcome in run.outcomes(here, given.rules):
        failed += outcome.fault is not None
        print(json.dumps(outcome.facts()) if given.json else outcome.row(), flush=True)
    say(f"{len(here) - failed} of {len(here)} as they should be")
    return 1 if failed else 0


def _silent(line: str) -> None:
    """Instead of print where the output is data."""


if __name__ == "__main__":
    main()
