"""The library over MCP, asked by a real client, on stdio and over HTTP."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.types import TextContent

from tests.support.paths import ROOT

TOKEN = "a-token-for-the-tests-0123456789"
COMMAND = ["-m", "rag", "--mode", "lexical", "--cache"]


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    command = [sys.executable, *COMMAND, str(tmp_path), "serve", "--http", "--port", "0"]
    environment = os.environ | {"RAG_SERVE_TOKEN": TOKEN}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        yield next(word for line in process.stderr for word in line.split() if word.startswith("http://"))
        process.terminate()
        process.wait(30)


async def test_any_client_finds_passages_on_stdio(tmp_path: Path) -> None:
    command = StdioServerParameters(command=sys.executable, args=[*COMMAND, str(tmp_path), "serve"], cwd=str(ROOT))
    async with Client(command) as client:
        [tool] = (await client.list_tools()).tools
        assert tool.name == "search_knowledge"
        asked = {"query": "uncoalesced loads", "arch": "sm_90", "language": "cuda", "limit": 2}
        found = (await client.call_tool("search_knowledge", asked)).structured_content
        assert found is not None
        assert found["mode"] == "lexical"
        assert found["passages"][0]["page"] == "mem-coalescing"
        assert {"bm25", "sheet", "score"} <= set(found["passages"][0]["scores"])
        assert len(found["passages"]) == 2


async def test_a_question_that_cannot_be_meant_is_a_tool_error_in_words(tmp_path: Path) -> None:
    command = StdioServerParameters(command=sys.executable, args=[*COMMAND, str(tmp_path), "serve"], cwd=str(ROOT))
    async with Client(command) as client:
        answer = await client.call_tool("search_knowledge", {"query": "loads", "arch": "hopper"})
        assert answer.is_error
        assert isinstance(answer.content[0], TextContent)
        assert "unknown architecture 'hopper'" in answer.content[0].text
        for given, said in {
            "limits": "search_knowledge has no argument 'limits'; did you mean 'limit'? there are: query, ",
            "limit": "the argument 'limit' cannot be used: ",
        }.items():
            answer = await client.call_tool("search_knowledge", {"query": "loads", given: "many"})
            assert answer.is_error and isinstance(answer.content[0], TextContent)
            assert answer.content[0].text.startswith(said)


async def test_over_http_the_token_opens_and_nothing_else_does(address: str) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as bearer,
        Client(streamable_http_client(address, http_client=bearer)) as client,
    ):
        found = await client.call_tool("search_knowledge", {"query": "bank conflicts"})
        assert found.structured_content and found.structured_content["passages"]
    async with httpx2.AsyncClient(timeout=60) as stranger:
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        accept = {"Accept": "application/json, text/event-stream"}
        for more in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}):
            assert (await stranger.post(address, json=body, headers=accept | more)).status_code == 401


@pytest.mark.parametrize(("token", "said"), [(None, "is not set"), ("short", "shorter than 16")])
def test_http_without_a_token_worth_the_name_does_not_start(tmp_path: Path, token: str | None, said: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "RAG_SERVE_TOKEN"}
    command = [sys.executable, *COMMAND, str(tmp_path), "serve", "--http"]
    environment |= {"RAG_SERVE_TOKEN": token} if token else {}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert said in done.stderr
