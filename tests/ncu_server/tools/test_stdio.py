"""A client on stdio that sends what is no message: real lines to a real process, and the answers as they come back."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.measuring import server_parameters

HELLO = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
}
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}
PING = {"jsonrpc": "2.0", "id": 9, "method": "ping"}


class Wire:
    """A server's process, written to and read from by lines."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process

    def send(self, *lines: bytes | dict[str, Any]) -> None:
        assert self.process.stdin
        for line in lines:
            self.process.stdin.write((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")
        self.process.stdin.flush()

    def read(self) -> dict[str, Any]:
        assert self.process.stdout
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def error(self, *lines: bytes | dict[str, Any]) -> tuple[int | None, int, str]:
        """The id, code and sentence of the answer to the lines."""
        self.send(*lines)
        answer = self.read()
        return answer["id"], answer["error"]["code"], answer["error"]["message"]


@pytest.fixture(scope="module", params=["ncu_server", "rag"])
def wire(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    cache = tmp_path_factory.mktemp("cache")
    more = ["--mode", "lexical", "--cache", str(cache), "serve"] if request.param == "rag" else []
    with started(cache, request.param, *more) as found:
        found.send(HELLO, READY)
        assert found.read()["result"]["serverInfo"]["name"] == request.param
        yield found


class started:  # noqa: N801
    def __init__(self, cache: Path, *command: str) -> None:
        self.cache, self.command = cache, command

    def __enter__(self) -> Wire:
        given = server_parameters(self.cache)
        line = [sys.executable, "-m", *self.command]
        self.process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=given.env)
        return Wire(self.process)

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.stdout.close()
        assert self.process.wait(30) == 0, "a client that goes leaves no process"


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        (b'{"jsonrpc": "2.0", "id": 5, "method":', -32700, "not JSON: EOF .* line 1 column 37"),
        (b"{'jsonrpc': '2.0'}", -32700, "not JSON: .*line 1 column 2"),
        (b"GET / HTTP/1.1", -32700, "not JSON"),
        (b'{"jsonrpc":"2.0","id":5,"method":"ping"} {"id":6}', -32700, "trailing characters"),
        (b'{"jsonrpc":"2.0","id":5,"method":"ping"}\x00', -32700, "not JSON"),
        (b'{"jsonrpc":"2.0","id":5,"method":"ping","params":{"x":"\xff"}}', -32700, "byte 0xff after 55 characters"),
        (b'{"x":' + b"[" * 5000 + b"]" * 5000 + b"}", -32700, "recursion limit"),
        (b'[{"jsonrpc":"2.0","id":5,"method":"ping"}]', -32600, "each message on a line of its own"),
        (b"42", -32600, "a message is a JSON object"),
    ],
)
def test_a_line_that_is_no_message_is_answered_with_the_reason(wire: Wire, line: bytes, code: int, words: str) -> None:
    identity, found, sentence = wire.error(line)
    assert (identity, found) == (None, code)
    assert re.search(words, sentence), sentence


@pytest.mark.parametrize(
    ("message", "code", "words"),
    [
        ({"id": 5, "method": "ping"}, -32600, "`jsonrpc` is missing"),
        ({"jsonrpc": "1.0", "id": 5, "method": "ping"}, -32600, "`jsonrpc` cannot be used"),
        ({"jsonrpc": "2.0", "id": 5}, -32600, "`method` is missing"),
        ({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": [1]}, -32600, "`params` cannot be used"),
        ({"jsonrpc": "2.0", "id": 5, "method": "tools/cal", "params": {}}, -32601, "not found"),
        ({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"arguments": {}}}, -32602, "'params.name' is"),
        (
            {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "x", "arguments": [1]}},
            -32602,
            "'params.arguments' cannot be used: .* not \\[1\\]",
        ),
    ],
)
def test_a_request_that_cannot_be_meant_is_answered_under_its_id(
    wire: Wire, message: dict[str, Any], code: int, words: str
) -> None:
    identity, found, sentence = wire.error(message)
    assert (identity, found) == (5, code)
    assert re.search(words, sentence), sentence


def test_what_nobody_waits_for_is_not_answered(wire: Wire) -> None:
    wire.send(b"", b"  ", {"jsonrpc": "2.0", "id": 5, "error": {}}, PING)
    assert wire.read() == {"jsonrpc": "2.0", "id": 9, "result": {}}


def test_a_line_without_end_takes_no_memory_and_the_next_one_is_served(wire: Wire) -> None:
    identity, code, sentence = wire.error(b'{"x":"' + b"x" * 30_000_000 + b'"}')
    assert (identity, code) == (None, -32600) and "at most 4194304 bytes" in sentence
    status = Path(f"/proc/{wire.process.pid}/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0])
    wire.send(PING)
    assert wire.read()["result"] == {} and peak < 300_000, "KiB; a message is read several times over"


@pytest.mark.parametrize("name", ["ncu_server"])
def test_a_request_before_initialize_is_told_to_wait(tmp_path: Path, name: str) -> None:
    with started(tmp_path, name) as wire:
        identity, code, sentence = wire.error(b"{oops")
        assert (identity, code) == (None, -32700)
        identity, code, sentence = wire.error({"jsonrpc": "2.0", "id": 5, "method": "tools/list"})
        assert (identity, code) == (5, -32602) and "send `initialize` before" in sentence
        wire.send(HELLO)
        assert wire.read()["result"]["serverInfo"]


@pytest.mark.parametrize("name", ["ncu_server", "rag"])
def test_a_client_that_reads_no_more_ends_the_server_without_a_fault(tmp_path: Path, name: str) -> None:
    more = ["--mode", "lexical", "--cache", str(tmp_path), "serve"] if name == "rag" else []
    with started(tmp_path, name, *more) as wire:
        wire.send(HELLO, READY)
        assert wire.read()["result"]["serverInfo"]
        assert wire.process.stdout
        wire.process.stdout.close()
        wire.send(PING)
