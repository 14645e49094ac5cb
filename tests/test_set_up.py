"""Set-up by `set_up.py`: which torch it takes, what it says before and after. Real pip, and wheels of a few bytes."""

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.pythons import INTERPRETERS, interpreter

OFFERED = {"torch": ["2.10.0+cpu", "2.13.0+cpu", "2.15.0"], "triton": ["3.7.1"]}
SetUp = Callable[..., subprocess.CompletedProcess[str]]


def wheel(folder: Path, name: str, version: str, needs: str = "") -> None:
    """A wheel with nothing in it."""
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as packed:
        info = f"{name}-{version}.dist-info"
        packed.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
        packed.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        packed.writestr(f"{info}/RECORD", "")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that dry runs share; they leave it as it is."""
    place = tmp_path_factory.mktemp("environment") / ".venv"
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    return place


@pytest.fixture
def set_up(environment: Path, tmp_path: Path) -> SetUp:
    """Runs a copy of the script whose pip looks in one folder of wheels, and finds no other program than given."""
    (tmp_path / "wheels").mkdir()
    (tmp_path / "bin").mkdir()
    shutil.copy(ROOT / "set_up.py", tmp_path)
    (tmp_path / "requirements.txt").write_text("torch>=2.11,<3\n")
    (tmp_path / "requirements-dev.txt").write_text("-r requirements.txt\ntriton\n")

    def run(*arguments: str, python: tuple[str, ...] = (sys.executable,)) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
        pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "wheels"), "PIP_CONFIG_FILE": os.devnull}
        arguments = arguments or (str(environment), "--dry-run")
        command = [*python, str(tmp_path / "set_up.py"), *arguments]
        mine = kept | pip | {"PATH": str(tmp_path / "bin")}
        return subprocess.run(command, env=mine, cwd=tmp_path, capture_output=True, text=True)

    return run


@pytest.fixture
def offered(tmp_path: Path, set_up: SetUp) -> Path:
    for name, versions in OFFERED.items():
        for version in versions:
            wheel(tmp_path / "wheels", name, version, "Requires-Dist: triton==3.7.1\n" * (version == "2.15.0"))
    return tmp_path / "wheels"


def program(folder: Path, name: str, ends: int) -> None:
    (folder / name).write_text(f"#!/bin/sh\nexit {ends}\n")
    (folder / name).chmod(0o755)


@pytest.mark.long
def test_without_a_gpu_the_newest_cpu_build_that_is_admitted_is_taken(set_up: SetUp, offered: Path) -> None:
    done = set_up()
    assert (done.returncode, done.stderr) == (0, "")
    assert "torch 2.13.0+cpu is a CPU build" in done.stdout


@pytest.mark.long
@pytest.mark.parametrize(("ends", "build"), [(0, "CUDA build"), (9, "CPU build")])
def test_a_gpu_that_the_driver_sees_gets_the_build_of_the_index(
    set_up: SetUp, offered: Path, tmp_path: Path, ends: int, build: str
) -> None:
    program(tmp_path / "bin", "nvidia-smi", ends)
    done = set_up()
    assert done.returncode == 0, done.stderr
    assert build in done.stdout
    assert "PIP_EXTRA_INDEX_URL" not in done.stdout


@pytest.mark.long
def test_without_a_cpu_build_it_says_what_is_large_and_how_to_name_an_index(set_up: SetUp, offered: Path) -> None:
    for path in offered.glob("*+cpu*"):
        path.unlink()
    large, hint = set_up().stdout.splitlines()
    assert "CUDA build: about" in large and "GB installed" in large
    assert hint.endswith("PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu make run")


@pytest.mark.long
def test_what_is_installed_already_is_left_as_it_is(set_up: SetUp, offered: Path, tmp_path: Path) -> None:
    place = str(tmp_path / "own")
    first, again = set_up(place, "--dev"), set_up(place, "--dev")
    assert (first.returncode, again.returncode, again.stdout) == (0, 0, ""), first.stderr + again.stderr
    [packages] = Path(place).glob("lib/python*/site-packages")
    assert (packages / "torch-2.13.0+cpu.dist-info").is_dir()
    (packages / "triton-3.7.1.dist-info/METADATA").read_text()


@pytest.mark.long
def test_an_index_that_cannot_be_reached_ends_in_one_sentence(set_up: SetUp) -> None:
    done = set_up()
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("Set-up stopped. The package index cannot be reached: see to the")


@pytest.mark.long
def test_an_index_without_torch_for_this_python_is_told_from_that(set_up: SetUp, tmp_path: Path) -> None:
    wheel(tmp_path / "wheels", "pip", "99")
    wanted = f"The package index has no torch for Python {sys.version_info[0]}.{sys.version_info[1]}: name another"
    assert wanted in set_up().stderr.splitlines()[-1]


@pytest.mark.parametrize("old", [(3, 10, 13), (3, 6, 15)])
def test_an_older_python_is_told_so_before_anything_else(set_up: SetUp, old: tuple[int, ...], tmp_path: Path) -> None:
    pretend = f"import runpy, sys; sys.version_info = {old}; runpy.run_path(sys.argv[1], run_name='__main__')"
    done = set_up(str(tmp_path / "new"), python=(sys.executable, "-c", pretend))
    assert done.stderr.count("\n") == 1 and "KernelAgent needs Python 3.11 or newer" in done.stderr
    assert not (tmp_path / "new").exists()


def test_a_folder_of_somebody_s_own_is_not_overwritten(set_up: SetUp, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("mine")
    assert "holds something else than a Python environment" in set_up(str(tmp_path / "notes")).stderr
    assert (tmp_path / "notes" / "mine.txt").read_text() == "mine"


@pytest.mark.long
def test_an_environment_whose_python_is_gone_is_made_anew(set_up: SetUp, offered: Path, tmp_path: Path) -> None:
    place = tmp_path / "own"
    (place / "bin").mkdir(parents=True)
    (place / "pyvenv.cfg").write_text("home = /nowhere\n")
    (place / "bin" / "python").symlink_to("/nowhere/python3")
    assert set_up(str(place), "--dry-run").returncode == 0
    assert (place / "bin" / "python").exists()


@pytest.mark.long
@pytest.mark.parametrize("version", INTERPRETERS)
def test_all_that_is_needed_resolves_from_the_public_index_alone(version: str, tmp_path: Path) -> None:
    """By uv, which reads of the large files no more than their heads."""
    python, uv = interpreter(version), Path(sys.executable).parent / "uv"
    if python is None:
        pytest.skip(f"there is no Python {version} here")
    if not uv.exists():
        pytest.skip("needs uv, which requirements-dev.txt names")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
    alone = kept | {"PATH": f"{uv.parent}:{os.environ['PATH']}", "PIP_CONFIG_FILE": os.devnull, "UV_NO_CONFIG": "1"}
    command = [python, str(ROOT / "set_up.py"), str(tmp_path / "new"), "--dev", "--dry-run"]
    done = subprocess.run(command, env=alone, capture_output=True, text=True)
    if "index cannot be reached" in done.stderr:
        pytest.skip("the package index cannot be reached")
    assert done.returncode == 0, done.stderr
    assert "torch comes in its CUDA build" in done.stdout or shutil.which("nvidia-smi")


def test_what_uv_cannot_find_pip_installs(set_up: SetUp, offered: Path, tmp_path: Path) -> None:
    uv = Path(sys.executable).parent / "uv"
    if not uv.exists():
        pytest.skip("needs uv, which requirements-dev.txt names")
    (tmp_path / "bin" / "uv").symlink_to(uv)
    (tmp_path / "uv.toml").write_text("offline = true\nno-index = true\n")
    with (tmp_path / "requirements.txt").open("a") as requirements:
        requirements.write("private_package\n")
    wheel(offered, "private_package", "1.0")
    done = set_up(str(tmp_path / "made"))
    assert done.returncode == 0, done.stderr
    assert "private-package" in done.stderr  # by uv, in vain
    assert list((tmp_path / "made").glob("lib/*/site-packages/private_package-1.0.dist-info"))
