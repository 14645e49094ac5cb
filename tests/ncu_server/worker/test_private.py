"""Private parts of torch and Triton: listed in one place, recorded with each version, refused where one is missing."""

import ast
import json
import re
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from ncu_server.errors import Code, Refusal
from ncu_server.machine import versions
from ncu_server.sandbox.forkserver import ForkServer
from ncu_server.targets import TARGETS, Probe
from ncu_server.worker import private
from tests.support.measuring import QUICK, ROOT, SCALE_ADD, opened, server_parameters
from tests.support.needs import needs_triton
from tests.support.trees import tree_of

HERE = Path(__file__).parent
RECORDED: dict[str, dict[str, dict[str, str]]] = json.loads((HERE / "private_parts.json").read_text())
CASES = ROOT / "ncu_server" / "cases"
SOURCES = [
    path
    for part in ("ncu_server", "kernel_agent", "mcp_shell", "rag", "benchmarks")
    for path in sorted((ROOT / part).rglob("*.py"))
    if CASES not in path.parents and path.name != "private.py"
]
PRIVATE = re.compile(r"(torch|triton)(\.\w+)*\._(?!_)\w+(\.\w+)*|triton\.\w+.*")


def dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def reached(tree: ast.AST) -> Iterator[str]:
    """All names in torch and Triton that a module's code leads to, by attribute or by import."""
    ours = {a.asname or a.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for a in n.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and dotted(node).partition(".")[0] not in ours:
            yield dotted(node)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def taken(tree: ast.AST) -> set[str]:
    """What a module takes from the list."""
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and dotted(n.func).startswith("private.take")]
    return {n.args[0].value for n in calls if isinstance(n.args[0], ast.Constant) and isinstance(n.args[0].value, str)}


def test_nobody_reaches_a_private_part_but_through_the_list() -> None:
    wrong = [f"{path.name}: {name}" for path in SOURCES for name in reached(tree_of(path)) if PRIVATE.match(name)]
    assert not wrong
    assert (
        PRIVATE.match("torch.autograd._enable_profiler") and PRIVATE.match("torch._C") and PRIVATE.match("triton.knobs")
    )
    assert not PRIVATE.match("torch.__version__") and not PRIVATE.match("torch.cuda.synchronize")


def test_all_that_is_listed_is_used_and_all_that_is_used_is_listed() -> None:
    used = set().union(*(taken(tree_of(path)) for path in SOURCES))
    # For others to be what it is, or called by a name of its module's.
    beside = {
        "torch.ops.aten.add.Tensor._schema",
        "torch.utils.cpp_extension.JIT_EXTENSION_VERSIONER",
        "triton.runtime.cache.CacheManager",
    }
    assert used | beside == set(private.LISTED)


def test_what_is_read_and_cannot_be_asked_for_has_its_test() -> None:
    for form in private.FORMS:
        assert (ROOT / "ncu_server" / form.reader).exists()
        assert (ROOT / "tests" / "ncu_server" / form.test).exists()


@pytest.mark.parametrize("package", versions.TRIED)
def test_each_part_was_there_in_every_version_that_was_tried(package: str) -> None:
    """`.ci/versions --fetch` writes the record; a part that is new in the list has to be tried at both ends first."""
    assert set(RECORDED[package]) == set(versions.TRIED[package])
    listed = {part.path for part in private.PARTS if part.package == package}
    assert all(set(found) == listed for found in RECORDED[package].values())


@pytest.mark.parametrize("package", ["torch", pytest.param("triton", marks=needs_triton)])
def test_the_installed_version_has_all_parts_as_they_were_recorded(package: str) -> None:
    assert private.refusal((package,)) is None
    recorded = RECORDED[package].get(version(package).partition("+")[0])
    found = private.shapes(package)
    # What is written in Python; of the rest each build and each Python tells something else.
    written = {path for path, shape in (recorded or {}).items() if shape.startswith("function")}
    assert {path: found[path] for path in written} == {path: (recorded or {})[path] for path in written}


def test_the_oldest_version_that_was_tried_is_the_oldest_that_is_admitted() -> None:
    (admitted,) = re.findall(r"^torch>=([\d.]+)$", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    assert versions.TRIED["torch"][0].startswith(admitted)


@pytest.mark.parametrize(
    ("found", "side"),
    [
        ("2.10.1", "older"),
        ("2.11.0", ""),
        ("2.12.1+cu128", ""),
        ("2.15.9", ""),
        ("2.16.0a0+git1", "newer"),
        ("3.0", "newer"),
    ],
)
def test_a_version_beyond_those_that_were_tried_is_noted(found: str, side: str) -> None:
    noted = versions.note("torch", found)
    assert (noted is not None) == bool(side)
    assert side in (noted or "")


# Stands before the real torch on the path and takes a part away from it.
LACKING = """
import sys
sys.path.remove({place!r})
del sys.modules["torch"]
import torch
del torch.nn.modules.dropout._DropoutNd
sys.path.insert(0, {place!r})
"""
SENTENCE = "torch.nn.modules.dropout._DropoutNd, which finds models with dropout, is missing: "


def lacking(place: Path) -> Path:
    (place / "torch").mkdir()
    (place / "torch" / "__init__.py").write_text(LACKING.format(place=str(place)))
    return place


def newer(place: Path) -> Path:
    (place / "torch-2.99.0.dist-info").mkdir()
    (place / "torch-2.99.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.99.0\n")
    return place


async def refusal(fork_server: ForkServer) -> Refusal:
    try:
        with pytest.raises(Refusal) as refused:
            await fork_server.spawn("reference")
    finally:
        fork_server.close()
    return refused.value


async def test_a_missing_part_is_the_machines_fault_and_said_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(lacking(tmp_path)))
    refused = await refusal(ForkServer(tmp_path, {"OMP_NUM_THREADS": "1"}, "cpu"))
    assert refused.code == Code.UNSUPPORTED_VERSION
    assert refused.sentence.startswith(f"torch {version('torch')} is not supported: {SENTENCE}")
    assert "this server was tried with torch 2.11.0 to " in refused.sentence
    assert "pip install 'torch>=2.11,<2." in refused.sentence


async def test_beyond_what_was_tried_a_missing_part_is_told_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place := tmp_path / "path").mkdir()
    (cache := tmp_path / "cache").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(newer(lacking(place))))
    async with opened(server_parameters(cache)) as server:
        shown = (await server.call("check_environment")).structured_content
        assert shown is not None
        (cpu,) = [t for t in shown["targets"] if t["name"] == "cpu"]
        assert not cpu["available"]
        assert cpu["reason"].startswith(f"torch 2.99.0 is not supported: {SENTENCE}")
        assert cpu["fix"].startswith("install a version that was tried: pip install 'torch>=2.11")
        said = await server.refusal("evaluate_kernel", candidate=QUICK, problem=SCALE_ADD, target="cpu")
        assert said.startswith("UNSUPPORTED_VERSION: target 'cpu' is not available here: torch 2.99.0 is not supported")


async def test_beyond_what_was_tried_all_goes_on_with_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(newer(tmp_path)))
    fork_server = ForkServer(tmp_path, {"OMP_NUM_THREADS": "1"}, "cpu")
    try:
        (await fork_server.spawn("reference")).close()
        assert fork_server.notes[0].startswith("torch 2.99.0 is newer than all that this server was tried with")
    finally:
        fork_server.close()


@needs_triton
async def test_a_machine_on_which_triton_cannot_compile_blames_no_kernel(tmp_path: Path) -> None:
    around: dict[str, Any] = TARGETS["triton"].environment(Probe(True, "none", "sm_90", 0))
    broken = {"CC": "/bin/false", "TRITON_LIBCUDA_PATH": str(tmp_path), "PATH": str(Path(sys.executable).parent)}
    (tmp_path / "libcuda.so.1").touch()
    refused = await refusal(ForkServer(tmp_path, around | broken, "cpu"))
    assert refused.code == Code.UNSUPPORTED_VERSION
    assert re.search(r"Triton [\d.]+ cannot compile here: .*/bin/false", refused.sentence)
