"""The two ways to a measuring server: a child over stdio, or an address over HTTP with a token."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import site
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.session import MessageHandlerFnT
from mcp.client.streamable_http import streamable_http_client
from pydantic import SecretStr

from kernel_agent.errors import ServerError
from kernel_agent.run.database import LOG

PASSED_ON = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|TERM|LANG|LC_\w+|TZ|TMPDIR|LD_LIBRARY_PATH|VIRTUAL_ENV|CC|CXX|"
    r"OMP_\w+|MKL_NUM_THREADS|CUDA_\w+|NVIDIA_\w+|TVM_FFI_\w+|TORCH_\w+|TRITON_\w+|XDG_\w+|ROCM_\w+|HIP_\w+|"
    r"NCU_(?!SERVER_TOKEN)\w+"
)
"""The environment variables a server started here gets; keys and tokens are never among them."""

CONNECT_S, SILENT_S = 30.0, 300.0
"""Seconds to reach an address, and between two signs of life of a call; the server gives one every five."""

REFUSALS = {
    401: "it wants another token: set NCU_SERVER_TOKEN to the one that it was started with",
    403: "it does not serve web pages of other origins",
    404: "there is no MCP server at this path; its own is /mcp",
    413: "the source is too long for it",
    421: "it does not answer to this name: start it with --allow-host and the name",
    503: "it holds as many sessions as it may",
}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server is: the command that starts it, with `variables` of its own and a file for its stderr, or its
    http(s) address with a token."""

    path: str
    token: SecretStr | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    log: str = LOG


class Address:
    """A server reached over HTTP; `refusal` says in words why it turned the latest request away, if it did."""

    def __init__(self, url: str, token: SecretStr | None) -> None:
        self._url, self._token = url, token
        self.refusal: str | None = None

    @asynccontextmanager
    async def client(self, heard: MessageHandlerFnT) -> AsyncIterator[Client]:
        """A client that is not connected yet; what it needs goes with the context. `heard` gets its notifications."""
        headers = {"Authorization": f"Bearer {self._token.get_secret_value()}"} if self._token else {}
        timeout = httpx2.Timeout(CONNECT_S, read=SILENT_S)
        async with httpx2.AsyncClient(headers=headers, timeout=timeout, event_hooks={"response": [self._note]}) as http:
            yield Client(streamable_http_client(self._url, http_client=http), message_handler=heard)

    async def _note(self, response: httpx2.Response) -> None:
        self.refusal = REFUSALS.get(response.status_code)


def is_address(path: str) -> bool:
    """Whether `mcp_server_path` is an address rather than a command."""
    return path.startswith(("http://", "https://"))


def command(path: str, variables: Mapping[str, str] | None = None) -> StdioServerParameters:
    """How to start the server: `python` is this interpreter, which finds our packages from any folder.

    It gets what PASSED_ON names of our environment, with `variables` in their place.

    Raises ServerError where `path` is no command, or one that this machine does not have.
    """
    try:
        program, *arguments = shlex.split(path)
    except ValueError:  # a quotation that does not end, or no word at all
        raise ServerError(f"The measuring server `{path}` is no command; correct mcp_server_path.") from None
    if program in ("python", "python3"):
        program = sys.executable
        if arguments[:2] == ["-m", "ncu_server"]:
            arguments = ["-P", *arguments]  # or a folder of that name would be started, and a torch.py be imported
    if shutil.which(program) is None:
        raise ServerError(
            f"The measuring server `{path}` cannot be started: there is no command {program}; correct mcp_server_path."
        )
    passed_on = {name: value for name, value in os.environ.items() if PASSED_ON.fullmatch(name)}
    around = passed_on | {"PYTHONPATH": python_path(), **(variables or {})}
    return StdioServerParameters(command=program, args=arguments, env=around)


def python_path() -> str:
    """The packages beside this one, unless the interpreter looks there anyway, and none that hangs on the folder."""
    ours = Path(__file__).resolve().parents[2]
    installed = ours in {Path(place).resolve() for place in (*site.getsitepackages(), site.getusersitepackages())}
    theirs = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    return os.pathsep.join([*([] if installed else [str(ours)]), *theirs])
