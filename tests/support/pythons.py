"""The Pythons that are installed here."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

INTERPRETERS = ("3.11", "3.12", "3.13", "3.14")


def interpreter(version: str) -> str | None:
    """A Python of this version, where one is installed: on the path, or where pyenv or this Python's builder put it."""
    beside = map(str, sorted(Path(sys.base_prefix).parent.glob(f"{version}*/bin/python3")))
    found = [path for path in (*beside, shutil.which(f"python{version}")) if path]
    return next((path for path in found if _answers(path)), None)


def _answers(python: str) -> bool:
    """Whether it runs: pyenv's shims stand on the path for versions that are not chosen."""
    return subprocess.run([python, "-c", ""], capture_output=True).returncode == 0
