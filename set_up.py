"""Make the environment that the Makefile's commands run in: `python3 set_up.py [DIR] [--dev] [--dry-run]`.

It needs the standard library alone, and an old Python reads it far enough to be told that it is too old.
Without a GPU it prefers torch's CPU build wherever pip is told to look. uv installs where there is one.
"""

import sys

OLDEST = (3, 11)
if sys.version_info < OLDEST:
    sys.exit(
        "KernelAgent needs Python 3.11 or newer, and {} is {}.{}.{}: name a newer one, such as"
        " `make run PYTHON=python3.12`.".format(sys.executable, *sys.version_info[:3])
    )

import argparse
import json
import operator
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
FETCHED_GB = {"cpu": 0.6, "cuda": 3.3}
TAKEN_GB = {"cpu": 2.3, "cuda": 6.1}
"""What is fetched, and what the environment takes on the disk: torch 2.13 (CPU) and 2.15 (CUDA) on x86-64, `--dev`."""

COMPARED = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}


class SetUpError(Exception):
    """Set-up cannot go on; the sentence says what to do."""


def main() -> None:
    """Set up the environment, or end with one sentence that says what to do."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", nargs="?", type=Path, default=Path(".venv"), help="default: .venv")
    parser.add_argument("--dev", action="store_true", help="with what the tests and checks need")
    parser.add_argument("--dry-run", action="store_true", help="resolve everything and install nothing")
    args = parser.parse_args()
    try:
        if sys.platform != "linux":
            raise SetUpError("KernelAgent needs Linux: use a Linux machine, a container or WSL.")
        install(environment(args.directory), "requirements-dev.txt" if args.dev else "requirements.txt", args.dry_run)
    except SetUpError as fault:
        sys.exit(f"Set-up stopped. {fault}")
    except KeyboardInterrupt:
        sys.exit("Set-up was stopped; the same command goes on with it.")


def environment(directory: Path) -> Path:
    """The Python of the environment in `directory`, which is made, or made anew where its Python is gone or too old."""
    python = directory.absolute() / "bin" / "python"
    if not (python.exists() and done([python, "-c", f"import sys; sys.exit(sys.version_info < {OLDEST})"])):
        if directory.exists() and any(directory.iterdir()) and not (directory / "pyvenv.cfg").exists():
            raise SetUpError(f"{directory} holds something else than a Python environment: name another folder.")
        make(directory)
    if not (done([python, "-m", "pip", "--version"]) or done([python, "-m", "ensurepip"])):
        uv = shutil.which("uv")
        if not uv or not done([uv, "pip", "install", "--python", python, "pip"]):
            raise SetUpError(f"{directory} has no pip: remove it and try again.")
    return python


def make(directory: Path) -> None:
    """Make an environment by Python's own module or, where that lacks a part (as on Debian), by uv."""
    if done([sys.executable, "-m", "venv", "--clear", directory]):
        return
    uv = shutil.which("uv")
    if not (uv and done([uv, "venv", "--clear", "--seed", "--python", sys.executable, directory])):
        raise SetUpError(
            f"{sys.executable} cannot make the environment {directory}: see that its folder is writable and that "
            f"Python's venv is there (Debian and Ubuntu: apt install python3.{sys.version_info[1]}-venv), or get uv."
        )


@dataclass(frozen=True)
class Torch:
    """Which torch is taken. `pinned` are requirements for pip, empty where the installer's own choice is right."""

    build: str
    pinned: tuple[str, ...] = ()
    words: str = ""


def install(python: Path, requirements: str, dry_run: bool) -> None:
    """Install what a file of requirements names; says before it what is large."""
    uv = shutil.which("uv")
    torch = present(python) or (None if has_gpu() else offered_to_pip(python, requirements))
    if not torch and uv:
        torch = chosen_by_uv(uv, python)
        uv = uv if torch else None  # what uv cannot find pip may: it looks elsewhere
    torch = torch or Torch("cuda", words=large())
    need_room(python.parent.parent, TAKEN_GB[torch.build])
    if torch.words:
        print(torch.words, flush=True)
    by_uv, by_pip = (commands(python, torch, ROOT / requirements, program, dry_run) for program in (uv, None))
    if not installed(by_uv) and (by_uv == by_pip or not installed(by_pip)):  # pip may look elsewhere than uv
        raise SetUpError(why(python))


def installed(commands: Sequence[Sequence[str]]) -> bool:
    """Whether the installers' commands end well, one after the other."""
    return all(subprocess.run(command, check=False).returncode == 0 for command in commands)


def commands(python: Path, torch: Torch, requirements: Path, uv: str | None, dry_run: bool) -> list[list[str]]:
    """The installers' command lines. uv knows nothing of pip's indexes: a build that pip found, pip installs."""
    how = ["--dry-run"] if dry_run else []
    how += [] if sys.stdout.isatty() else ["-q"]
    # Without byte code, most of which nothing needs: that takes longer than the download.
    pip = [str(python), "-m", "pip", "install", "--no-compile", *how, *torch.pinned]
    if not uv or (torch.pinned and dry_run):
        return [[*pip, "-r", str(requirements)]]
    rest = [uv, "pip", "install", *how, "--python", str(python), "-r", str(requirements)]
    return [pip, rest] if torch.pinned else [rest]


def present(python: Path) -> Torch | None:
    """The torch that is installed already, where the requirements admit it."""
    found = read([python, "-c", "import importlib.metadata as m; print(m.version('torch'))"]).strip()
    return Torch("cpu") if found and admits(found) else None


def offered_to_pip(python: Path, requirements: str) -> Torch | None:
    """The newest CPU build wherever pip is told to look, with the Triton that torch of this release asks for."""
    known = re.findall(r"[\w.+]+", read([python, "-m", "pip", "index", "versions", "torch"]).partition("versions:")[2])
    builds = [v for v in known if v.endswith("+cpu") and admits(v)]
    if not builds:
        return None
    best = max(builds, key=release)
    pinned = [f"torch=={best}"]
    if "triton" in (ROOT / requirements).read_text() and platform.machine() == "x86_64":
        pinned += triton_for(python, best.partition("+")[0])
    words = f"torch {best} is a CPU build: about {FETCHED_GB['cpu']} GB are fetched in all."
    return Torch("cpu", tuple(pinned), words)


def triton_for(python: Path, version: str) -> list[str]:
    """What torch's own build of this release asks for; the CPU build, which has no need of Triton, does not say."""
    ask = ["-m", "pip", "install", "-q", "--dry-run", "--no-deps", "--ignore-installed", "--report", "-"]
    report = read([python, *ask, f"torch==={version}"])
    needed = json.loads(report)["install"][0]["metadata"].get("requires_dist", []) if report else []
    return [line.partition(";")[0].strip() for line in needed if re.match(r"triton\b", line)]


def chosen_by_uv(uv: str, python: Path) -> Torch | None:
    """The torch that uv takes by its own settings; None where it finds none."""
    ask = [uv, "pip", "install", "--dry-run", "--no-deps", "--python", str(python), wanted()]
    found = subprocess.run(ask, capture_output=True, text=True, check=False)
    if found.returncode != 0:
        return None
    return Torch("cpu") if "+cpu" in found.stderr else Torch("cuda", words=large())


def large() -> str:
    """What is said before torch's CUDA build is fetched."""
    words = (
        f"torch comes in its CUDA build: about {FETCHED_GB['cuda']} GB are fetched, {TAKEN_GB['cuda']} GB installed."
    )
    hint = f"For the small CPU build stop this, then: PIP_EXTRA_INDEX_URL={CPU_INDEX} make run"
    return words if has_gpu() else f"{words}\n{hint}"


def wanted() -> str:
    """The line of the requirements that names torch."""
    return next(line for line in (ROOT / "requirements.txt").read_text().splitlines() if re.match(r"torch\b", line))


def admits(version: str) -> bool:
    """Whether the requirements admit a release of torch."""
    bounds = re.findall(r"(>=|<=|==|!=|<|>)\s*([\d.]+)", wanted().partition(";")[0])
    return all(COMPARED[sign](release(version), release(bound)) for sign, bound in bounds)


def release(version: str) -> tuple[int, ...]:
    """`2.13.0+cpu` as (2, 13, 0), without zeros at the end."""
    numbers = [int(n) for n in re.findall(r"\d+", version.partition("+")[0])]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def has_gpu() -> bool:
    """Whether an NVIDIA driver sees a GPU."""
    return bool(shutil.which("nvidia-smi")) and done(["nvidia-smi", "-L"])


def need_room(directory: Path, needed: float) -> None:
    """Raises SetUpError where the disk cannot hold what is about to be fetched."""
    free = shutil.disk_usage(directory).free / 1e9
    if free < needed and not (directory / ".run").exists():
        raise SetUpError(
            f"{directory} needs {needed} GB, and {free:.1f} GB of its disk are free: make room, then go on."
        )


def why(python: Path) -> str:
    """What to do after an installer failed, whose own words stand above."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if read([python, "-m", "pip", "index", "versions", "torch"]):
        return "Do what the lines above ask for, or `make clean` and try again; nothing else was changed."
    if read([python, "-m", "pip", "index", "versions", "pip"]):
        return f"The package index has no torch for Python {version}: name another, as in `make run PYTHON=python3.12`."
    return "The package index cannot be reached: see to the network, the proxy or pip's index-url, then try again."


def done(command: Sequence[str | Path]) -> bool:
    """Whether a command ends well; what it prints is dropped."""
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def read(command: Sequence[str | Path]) -> str:
    """What a command prints, nothing where it fails."""
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    return ran.stdout if ran.returncode == 0 else ""


if __name__ == "__main__":
    main()
