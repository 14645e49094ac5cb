"""The one token that a server over HTTP wants, compared in constant time."""

from __future__ import annotations

import secrets
from typing import Any

from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from pydantic import AnyHttpUrl

SHORTEST = 16


class OneToken:
    """Accepts one token."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    async def verify_token(self, token: str) -> AccessToken | None:
        """Who bears the token, or None."""
        if not secrets.compare_digest(token.encode(errors="surrogateescape"), self._token):
            return None
        return AccessToken(token=token, client_id="bearer", scopes=[])


def guard(token: str | None) -> dict[str, Any]:
    """What MCPServer takes to answer over HTTP only who bears the token; nothing where there is none.

    Tokens are handed out by people, so there is no address that issues them; the SDK wants one named.
    """
    if token is None:
        return {}
    issuer = AuthSettings(issuer_url=AnyHttpUrl("http://localhost"), resource_server_url=None)
    return {"token_verifier": OneToken(token), "auth": issuer}


def given(token: str | None) -> str | None:
    """The token that somebody has set, where it is long enough to be one."""
    return token.strip() if token is not None and len(token.strip()) >= SHORTEST else None


def lacking(variable: str, token: str | None) -> str:
    """In words, what is wrong with a token that `given` does not take."""
    return f"{variable} {'is not set' if not token else f'is shorter than {SHORTEST} characters'}"


def advice(variable: str) -> str:
    """A command that sets a good one."""
    return f"for example: export {variable}=$(openssl rand -hex 32)"
