"""What a person has who installs a wheel: every data file, and the commands in any folder, with no checkout."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters

from tests.support.edits import edit
from tests.support.paths import ROOT

SHIPPED = {name: name for name in ("kernel_agent", "mcp_shell", "ncu_server", "rag")} | {"corpus": "rag/corpus"}
"""The folders of the checkout, and where a wheel has them."""
LEFT = {"__pycache__", ".git", ".venv", "runs", "build", "dist"}
BUILD = "import sys; from setuptools import build_meta as b; print(getattr(b, 'build_' + sys.argv[1])(sys.argv[2]))"
PROBLEM = """
import torch


class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.relu(x * y + 1.0) * torch.sigmoid(x)


def get_inputs():
    return [torch.randn(512, 1024), torch.randn(512, 1024)]


def get_init_inputs():
    return []
"""

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def files(folder: Path) -> Iterator[str]:
    """The files of a checkout below a folder, from the folder on."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        kept = not LEFT & set(name.parts) and not any(p.endswith((".egg-info", "_cache")) for p in name.parts)
        if kept and path.is_file() and path.suffix != ".pyc" and name.name != ".env":
            yield name.as_posix()


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive, built of a copy so that nothing is written here."""
    copy, out = tmp_path_factory.mktemp("copy") / "checkout", tmp_path_factory.mktemp("archive")
    for name in files(ROOT):
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)
    return out / built("sdist", copy, out)


@pytest.fixture(scope="module")
def wheel(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built of the source archive alone."""
    out = tmp_path_factory.mktemp("wheel")
    with tarfile.open(archive) as packed:
        packed.extractall(out, filter="data")
    [source] = out.iterdir()
    return out / built("wheel", source, out)


def built(kind: str, source: Path, out: Path) -> str:
    ran = subprocess.run([sys.executable, "-c", BUILD, kind, str(out)], cwd=source, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def commands(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of commands of a new environment with the wheel in it; what it depends on is that of the tests."""
    home = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    subprocess.run([home / "bin/pip", "install", "-q", "--no-deps", "--no-index", str(wheel)], check=True)
    theirs = [path for path in sys.path if path.endswith("-packages")]
    [packages] = home.glob("lib/python*/site-packages")
    (packages / "of_the_tests.pth").write_text("\n".join(theirs))
    return home / "bin"


def run(commands: Path, folder: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KERNEL_AGENT_", "PYTHON"))}
    environment = kept | {"KERNEL_AGENT_PROVIDER": "templates"}
    whole = [str(commands / program), *arguments]
    return subprocess.run(whole, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


def test_the_wheel_holds_every_file_of_ours(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    wanted = {f"{place}/{name}" for folder, place in SHIPPED.items() for name in files(ROOT / folder)}
    assert len(wanted) > 400
    assert not wanted - held
    assert {name.split("/")[0] for name in held} == {
        "kernel_agent",
        "mcp_shell",
        "ncu_server",
        "rag",
        "kernel_agent-0.1.0.dist-info",
    }


def test_the_source_archive_is_the_checkout(archive: Path) -> None:
    with tarfile.open(archive) as packed:
        held = {name.partition("/")[2] for name in packed.getnames()}
    assert not set(files(ROOT)) - held


def test_the_main_job_runs_in_an_empty_folder(commands: Path, tmp_path: Path) -> None:
    (problem := tmp_path / "chain.py").write_text(PROBLEM)
    settings = ["--target", "cpu", "--num-rounds", "1", "--branching-factor", "1", "--sweep-evaluations", "0"]
    done = run(commands, tmp_path / "empty", "kernel-agent", "run", str(problem), *settings)
    assert done.returncode == 0, done.stdout + done.stderr
    [best] = (tmp_path / "empty/runs").glob("*/best_kernel.py")
    assert "class ModelNew" in best.read_text()


def test_the_library_answers_in_an_empty_folder(commands: Path, tmp_path: Path) -> None:
    ask = ["-m", "rag", "--cache", str(tmp_path / "cache"), "--mode", "lexical", "search", "warp shuffle row reduction"]
    done = run(commands, tmp_path / "empty", "python", *ask)
    assert done.returncode == 0, done.stderr
    assert "warp-shuffle-reduce" in done.stdout


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A folder of a person's own with names that Python would take for ours or for a library's."""
    for package in ("mcp_shell", "ncu_server", "rag"):
        (tmp_path / "odd" / package).mkdir(parents=True)
        (tmp_path / "odd" / package / "__init__.py").write_text("raise SystemExit('this is the person's own')\n")
    for module in ("torch", "mcp", "numpy", "rich", "triton"):
        (tmp_path / "odd" / f"{module}.py").write_text("raise SystemExit('this is the person's own')\n")
    return tmp_path / "odd"


@pytest.mark.parametrize("command", [["kernel-agent"], ["python", "-m", "kernel_agent"]])
def test_what_lies_in_the_folder_is_not_taken_for_ours(commands: Path, odd: Path, command: list[str]) -> None:
    (problem := odd / "chain.py").write_text(PROBLEM)
    (kernel := odd / "kernel.py").write_text(edit(PROBLEM, "class Model(", "class ModelNew("))
    judge = ["evaluate", str(kernel), "--problem", str(problem), "--target", "cpu", "--baselines", "eager", "--json"]
    done = run(commands, odd, *command, *judge)
    assert "own" not in done.stderr, done.stderr
    assert '"status"' in done.stdout, done.stdout + done.stderr


async def test_the_server_answers_a_client_from_any_folder(commands: Path, odd: Path) -> None:
    parameters = StdioServerParameters(command=str(commands / "ncu-server"), cwd=str(odd))
    async with Client(parameters) as client:
        assert "evaluate_kernel" in {tool.name for tool in (await client.list_tools()).tools}
