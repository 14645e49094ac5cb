"""`report` and `watch`: the page of runs and suites as a file, and as a server that follows them."""

from __future__ import annotations

import argparse
import json
import secrets
import socket
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from kernel_agent.errors import Unavailable, UsageError

if TYPE_CHECKING:
    from kernel_agent.cli.flags import Parser

COMPARISON = "comparison.html"
LOCAL = ("127.0.0.1", "localhost", "::1")


def add_report(command: Parser) -> None:
    """The flags of `report`."""
    command.add_argument(
        "directories",
        metavar="RUN",
        nargs="+",
        type=Path,
        help="the directory of a run or of a suite, or a folder of runs; of several runs or suites, one page",
    )
    command.add_argument(
        "--output",
        "-o",
        metavar="FILE",
        type=Path,
        help=f"the page (default: report.html in RUN; of several {COMPARISON})",
    )
    command.add_argument("--open", action="store_true", help="open it in the browser")
    command.add_argument("--json", action="store_true", help="print the facts of the page as JSON, and write nothing")


def report(arguments: argparse.Namespace) -> Iterator[str]:
    """Write the page of one run or suite, or of several together; its path. A suite beside a run counts by its runs."""
    from kernel_agent.page.report import REPORT, compared, meant, whole, written
    from kernel_agent.suite import report as suites

    places, given = arguments.directories, arguments.output
    are_suites = all(map(suites.is_suite, places))
    runs = [] if are_suites else meant(places)
    if arguments.json:
        found = suites.whole(places) if are_suites else whole(runs)
        yield json.dumps(found[0] if isinstance(found, list) and len(found) == 1 else found, indent=2)
        return
    if are_suites:
        file = suites.written(places, given or (places[0] / REPORT if len(places) == 1 else Path(COMPARISON)))
    else:
        file = written(runs[0], file=given) if len(runs) == 1 else compared(runs, given or Path(COMPARISON))
    if arguments.open:
        webbrowser.open(file.resolve().as_uri())
    yield str(file)


def add_watch(command: Parser) -> None:
    """The flags of `watch`."""
    command.add_argument(
        "directory",
        metavar="RUN|DIR",
        type=Path,
        nargs="?",
        default=Path("runs"),
        help="the directory of a run or of a suite, or a folder of them (default: runs)",
    )
    command.add_argument("--port", type=_port, default=0, help="the port (default: a free one)")
    command.add_argument(
        "--host", default="127.0.0.1", help="the address to listen on (default: 127.0.0.1, this machine alone)"
    )
    command.add_argument("--open", action="store_true", help="open it in the browser")


def watch(arguments: argparse.Namespace) -> Iterator[str]:
    """Serve the page until Ctrl-C; its address with the token first."""
    import uvicorn

    from kernel_agent.live.server import app
    from kernel_agent.run.journal import FILE
    from kernel_agent.suite.report import is_suite

    directory = arguments.directory
    if not directory.is_dir():
        raise UsageError(f"There is no folder {directory}: give that of a run or of a suite, or one that holds some.")
    token = secrets.token_urlsafe(24)
    listening = _listening(arguments.host, arguments.port)
    one = {"run": "."} if (directory / FILE).is_file() else {"suite": "."} if is_suite(directory) else {}
    host = f"[{arguments.host}]" if ":" in arguments.host else arguments.host
    address = f"http://{host}:{listening.getsockname()[1]}/?{urlencode({'token': token, **one})}"
    yield address
    if arguments.host not in LOCAL:
        yield "Whoever reaches this address and has the token can read and stop these runs; nothing is encrypted."
    if arguments.open:
        webbrowser.open(address)
    hosts = None if arguments.host in LOCAL else ["*"]
    config = uvicorn.Config(app(directory, token, hosts), log_level="error", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listening])


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"a port is a number up to 65535, not {text}")
    return int(text)


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        raise Unavailable(f"{host}, port {port} cannot be listened on ({error}): choose another --port.") from None
    listening.set_inheritable(True)
    return listening
