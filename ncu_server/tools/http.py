"""The server over HTTP: one bearer token, names that it answers to, a limit on what a request may hold.

Whoever holds the token can run programs as the user who started the server. TLS is a proxy's task.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Sequence
from typing import Any

import uvicorn
from mcp.server import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette

from mcp_shell import bearer
from ncu_server.errors import Code, Refusal

PATH = "/mcp"
TOKEN_VARIABLE = "NCU_SERVER_TOKEN"
MOST_BYTES = 4 << 20
"""A request with a larger body is refused."""
MOST_SESSIONS = 100
CLOSING_S = 2
LOCAL = ("127.0.0.1", "localhost", "[::1]")
EVERYWHERE = ("0.0.0.0", "::")


def required(token: str | None) -> str:
    """The token that clients must bear. Raises Refusal BAD_ARGUMENT where there is none worth the name."""
    if (found := bearer.given(token)) is not None:
        return found
    reason = (
        f"{bearer.lacking(TOKEN_VARIABLE, token)}: over HTTP this server executes the code that it is sent, so it "
        "starts only with a token that every client must give"
    )
    raise Refusal(Code.BAD_ARGUMENT, reason, bearer.advice(TOKEN_VARIABLE))


def application(mcp: MCPServer[Any], host: str, names: Sequence[str]) -> Starlette:
    """The ASGI application; it answers only requests whose Host is `host`, one of `names` or this machine itself."""
    hosts = list(dict.fromkeys([*LOCAL, *_named(host), *names]))
    security = TransportSecuritySettings(
        allowed_hosts=[form for name in hosts for form in (name, f"{name}:*")],
        allowed_origins=[
            f"{scheme}://{form}" for scheme in ("http", "https") for name in hosts for form in (name, f"{name}:*")
        ],
    )
    return mcp.streamable_http_app(
        streamable_http_path=PATH,
        host=host,
        transport_security=security,
        max_request_body_size=MOST_BYTES,
        max_sessions=MOST_SESSIONS,
    )


def _named(host: str) -> tuple[str, ...]:
    if host in EVERYWHERE:
        return socket.gethostname(), socket.getfqdn()
    return (f"[{host}]" if ":" in host else host,)


@contextlib.contextmanager
def bound(host: str, port: int) -> Iterator[socket.socket]:
    """A listening socket. Raises Refusal BAD_ARGUMENT where the address cannot be had."""
    try:
        family, *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as fault:
        words = f"cannot listen on {host}, port {port}: {getattr(fault, 'strerror', None) or fault}"
        raise Refusal(Code.BAD_ARGUMENT, words, "name another with --host and --port") from None
    with listening:
        yield listening


def announcement(host: str, port: int) -> Iterator[str]:
    """What a person who starts the server has to know, a sentence a line."""
    shown = f"[{host}]" if ":" in host else host
    yield f"ncu_server listens on http://{shown}:{port}{PATH}"
    yield "It executes the code that it is sent: whoever holds the token can run programs here as you."
    if shown not in LOCAL:
        yield "Nothing is encrypted: put a proxy with TLS before it, or listen on 127.0.0.1 and tunnel with ssh."


def serve(application: Starlette, listening: socket.socket) -> None:
    """Answer requests until a signal ends the process; its children end with it."""
    config = uvicorn.Config(application, log_level="warning", timeout_graceful_shutdown=CLOSING_S, server_header=False)
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listening])
