"""Which tests are `fast`: those whose text reaches no word of STARTERS, which start processes or servers.

Reached is what a test names, what its fixtures and the helpers of its file, its conftests and tests/support name, and
so on. `make test-fast` runs them, and `Guard` fails one that starts a process or listens all the same.
"""

import ast
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT
from tests.support.trees import tree_of

TESTS = ROOT / "tests"
_STARTERS = """
subprocess Popen fork start_server create_subprocess_exec StdioServerParameters stdout stderr pytest_asyncio
server stdio_client opened open_report callers served in_process python _pdf inductor macros
evaluate_here sync_playwright ScriptedOpenAI KernelAgent BenchClient Supervisor ForkServer Builds Canaries Embedder
"""
STARTERS = frozenset(_STARTERS.split())
# The audit events (PEP 578) of a new process and of a server that listens.
REFUSED = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system", "socket.bind"}


def is_fast(path: Path, name: str) -> bool:
    """Whether the test function `name` of a file reaches none of STARTERS."""
    known, reached, open_ = _scope(path), set[str](), {name}
    while open_:
        reached |= open_
        open_ = {word for one in open_ for word in known.get(one, ())} - reached
    return not reached & STARTERS


@cache
def _scope(path: Path) -> Mapping[str, set[str]]:
    """What each definition that a test file sees names: its own, its conftests', those of tests/support."""
    conftests = [folder / "conftest.py" for folder in reversed(path.parents) if folder.is_relative_to(TESTS)]
    files = [*sorted((TESTS / "support").glob("*.py")), *(one for one in conftests if one.exists()), path]
    return {name: words for file in files for name, words in _definitions(file).items()}


@cache
def _definitions(path: Path) -> Mapping[str, set[str]]:
    found = {}
    for node in tree_of(path).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found[node.name] = _words(node)
        elif isinstance(node, ast.Assign):
            targets = [one.id for target in node.targets for one in ast.walk(target) if isinstance(one, ast.Name)]
            found |= dict.fromkeys(targets, _words(node.value))
    return found


def _words(node: ast.AST) -> set[str]:
    """Names, attributes, parameters (fixtures are named so), and strings (`usefixtures` names by them)."""
    found = set()
    for one in ast.walk(node):
        match one:
            case ast.Name(id=word) | ast.Attribute(attr=word) | ast.arg(arg=word) | ast.Constant(value=str(word)):
                found.add(word)
    return found


class Guard:
    """Fails a test that is marked fast and starts a process or listens on a socket."""

    def __init__(self) -> None:
        self.watches = False
        sys.addaudithook(self.refuse)

    def refuse(self, event: str, _: tuple[Any, ...]) -> None:
        if self.watches and event in REFUSED:
            self.watches = False
            pytest.fail(f"marked fast, but it causes {event}: name what starts it in tests/support/fast.py:STARTERS")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.watches = item.get_closest_marker("fast") is not None
        try:
            return (yield)
        finally:
            self.watches = False
