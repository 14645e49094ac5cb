"""The versions of torch and Triton that the workers were tried with, and what is said of others.

Workers lean on private parts of both (ncu_server.worker.private). Another version may have them too, so nothing is
refused for its number: a version that was not tried is noted, and asked for the parts before anything is measured.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from ncu_server.sandbox.enter import scrubbed, search_path

TRIED = {
    "torch": ("2.11.0", "2.13.0", "2.15.0"),
    "triton": ("3.6.0", "3.7.1", "3.8.0", "3.9.0"),
}
"""Of each package the versions, oldest first, that `.ci/versions --fetch` tests; those between are as good."""
ASK = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from ncu_server.worker import private
print(json.dumps(private.refusal(sys.argv[2:])))
"""
ASK_TIMEOUT_S = 120


def installed(package: str) -> str | None:
    """The version of an installed package, None where it is not there."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def span(package: str) -> str:
    """The oldest and the newest version that was tried."""
    tried = TRIED[package]
    return f"{tried[0]} to {tried[-1]}"


def wanted(package: str) -> str:
    """The versions that were tried as pip takes them: `torch>=2.11,<2.16`."""
    (old, first), (new, last) = _release(TRIED[package][0]), _release(TRIED[package][-1])
    return f"{package}>={old}.{first},<{new}.{last + 1}"


def note(package: str, found: str | None = None) -> str | None:
    """A sentence where the installed version (or `found`) lies beyond those that were tried, else None."""
    found = found or installed(package)
    if found is None:
        return None
    ends = [_release(TRIED[package][end]) for end in (0, -1)]
    if ends[0] <= _release(found) <= ends[1]:
        return None
    side = "older" if _release(found) < ends[0] else "newer"
    return f"{package} {found} is {side} than all that this server was tried with ({span(package)})"


@functools.cache
def refusal(packages: Sequence[str]) -> tuple[str, str] | None:
    """What stands against working with these packages as they are installed, and what to do about it; None where
    nothing does. A process is asked only for versions beyond those that were tried."""
    for package in packages:
        if installed(package) is None:
            return f"the package {package} is not installed", f"pip install '{wanted(package)}'"
    return _asked(packages) if any(note(package) for package in packages) else None


def _asked(packages: Sequence[str]) -> tuple[str, str] | None:
    command = [sys.executable, "-P", "-s", "-c", ASK, json.dumps(search_path()), *packages]
    fix = f"pip install {' '.join(repr(wanted(package)) for package in packages)}"
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=ASK_TIMEOUT_S, env=scrubbed(os.environ), check=True
        )
        said = json.loads(done.stdout.splitlines()[-1])
    except subprocess.CalledProcessError as fault:
        last = (fault.stderr.strip().splitlines() or [f"exit code {fault.returncode}"])[-1]
        return f"{' and '.join(packages)} cannot be imported: {last}", fix
    except (subprocess.TimeoutExpired, ValueError, IndexError):
        return f"{' and '.join(packages)} cannot be imported within {ASK_TIMEOUT_S} s", fix
    return (said[0], said[1]) if said else None


def _release(text: str) -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)
