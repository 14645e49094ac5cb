"""The shape of the house, held by walking its syntax trees."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.trees import tree_of

PARTS = ("kernel_agent", "ncu_server", "rag", "mcp_shell")
# The cases of the judge are data: candidates and problems, as anybody might write them.
CASES = ROOT / "ncu_server" / "cases"
# What delivered files carry is text of theirs: it runs there, beside names that are written for each.
CARRIED = ROOT / "kernel_agent" / "delivery" / "carried"
FILES = sorted(p for part in PARTS for p in (ROOT / part).rglob("*.py") if not {CASES, CARRIED} & {*p.parents})
# A file imports from its own wing and from wings below; a wing is a folder, or one of the files beside the folders.
WINGS = {
    "kernel_agent": (
        "__main__ cli live suite agent search proposers prompts replies page delivery knowledge llm bench interfaces "
        "problem run settings env_file providers targets errors text"
    ),
    "ncu_server": (
        "__main__ server tools selftest sanitizer profiler judge harness compiler worker machine sandbox places "
        "targets rules wire errors"
    ),
    "rag": "__main__ mcp_server library experience index embeddings documents retrieval text_files folders corpus_path "
    "errors",
    "mcp_shell": "surface protocol bearer",
}


def module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module(p): p for p in FILES}


@cache
def imports(path: Path) -> set[str]:
    """The modules of ours that a file imports, at any depth, type-checking imports left out."""
    tree = tree_of(path)
    hidden = {
        id(n)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for n in ast.walk(block)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {
                f"{node.module}.{a.name}" if f"{node.module}.{a.name}" in MODULES else node.module for a in node.names
            }
    return {f for f in found if f.split(".")[0] in PARTS} & (set(MODULES) | set(PARTS))


def functions() -> list[tuple[int, str]]:
    return [
        (n.end_lineno - n.lineno + 1, f"{module(p)}:{n.name}")
        for p in FILES
        for n in ast.walk(tree_of(p))
        if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) and n.end_lineno
    ]


def wing(name: str) -> tuple[str, str]:
    """A module's part and wing; a part itself is the wing of its `__init__`."""
    part, _, rest = name.partition(".")
    return part, rest.split(".")[0]


def test_parts_import_in_one_direction() -> None:
    below = {"kernel_agent": {"rag"}, "ncu_server": {"mcp_shell"}, "rag": {"mcp_shell"}, "mcp_shell": set()}
    wrong = [
        f"{module(p)} imports {i}"
        for p in FILES
        for i in imports(p)
        if i.split(".")[0] not in {part := module(p).split(".")[0], *below[part]}
    ]
    assert not wrong


def test_imports_go_down_only() -> None:
    wrong = []
    for path in FILES:
        part, here = wing(module(path))
        for other in imports(path):
            its, there = wing(other)
            order = WINGS[part].split()
            if here and there and its == part and here != there and order.index(here) > order.index(there):
                wrong.append(f"{module(path)} imports {other}")
    assert not wrong


def test_every_wing_has_its_place_and_says_what_it_is() -> None:
    assert {name for m in MODULES if (name := wing(m)[1])} == {w for row in WINGS.values() for w in row.split()}
    assert not [m for m, p in MODULES.items() if p.name == "__init__.py" and not ast.get_docstring(tree_of(p))]


def test_no_module_imports_itself_through_others() -> None:
    graph = {m: {i for i in imports(p) if i in MODULES and i != m} for m, p in MODULES.items()}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, f"cycle: {' -> '.join((*path, name))}"
        if name not in done:
            for other in graph[name]:
                visit(other, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_functions_and_files_are_short() -> None:
    lengths = sorted(functions())
    assert not [f for f in lengths if f[0] > 60]
    assert lengths[int(len(lengths) * 0.9)][0] <= 30
    assert not [module(p) for p in FILES if len(p.read_text().splitlines()) > 400]


def test_torch_stays_in_the_workers() -> None:
    wrong = []
    for path in FILES:
        tree = tree_of(path)
        names = [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
        names += [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
        if any(n.split(".")[0] in ("torch", "sentence_transformers") for n in names):
            wrong.append(module(path))
    assert [m for m in wrong if not m.startswith("ncu_server.worker")] in ([], ["rag.embeddings.local"])


def test_broad_excepts_stand_only_at_the_edges() -> None:
    wrong = []
    for path in FILES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ExceptHandler):
                name = ast.unparse(node.type) if node.type else "everything"
                if name in ("everything", "Exception", "BaseException") and not _raises_again(node):
                    wrong.append(module(path))
    edges = {"roles", "profiled", "alone"}
    assert set(wrong) <= {"ncu_server.tools.state", *(f"ncu_server.worker.{name}" for name in edges)}


def _raises_again(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def test_names_say_what_a_thing_is() -> None:
    vague = ("Manager", "Handler", "Factory", "Service", "Util")
    classes = [f"{module(p)}.{n.name}" for p in FILES for n in ast.walk(tree_of(p)) if isinstance(n, ast.ClassDef)]
    assert not [c for c in [*classes, *MODULES] if any(v.lower() in c.lower() for v in vague)]


@pytest.mark.parametrize("name", ["kernel_agent.cli.main", "kernel_agent", "rag", "ncu_server.server"])
def test_importing_the_thinking_side_loads_no_torch(name: str) -> None:
    code = f"import sys, {name}; print([m for m in ('torch', 'chromadb', 'sentence_transformers') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


def test_importing_the_command_line_is_quick() -> None:
    code = "import time; t = time.process_time(); import kernel_agent.cli.main; print(time.process_time() - t)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert float(done.stdout) < 1.0


def test_names_of_tests_are_short() -> None:
    names = [
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]
    assert len(names) > 1000 and not [name for name in names if len(name) > 75]


def test_tests_import_what_they_share_from_tests_support() -> None:
    found = [
        f"{path.name} imports {node.module}"
        for path in (ROOT / "tests").rglob("*.py")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ImportFrom) and node.module and ".test_" in node.module
    ]
    assert not found
