"""A run that is killed and resumed ends as one that never was: real processes, real kills, a real MCP server."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernel_agent.run.journal import read
from kernel_agent.run.types import Evaluation, digest
from tests.support.scripted_run import ROOT


def start(directory: Path, log: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.support.scripted_run", str(directory), str(log)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def play(directory: Path, log: Path, kill_after: int | None = None) -> int:
    """Start or resume the run and let it end, or kill it -9 after so many of its lines; the exit code."""
    with start(directory, log) as process:
        assert process.stdout
        for number, _ in enumerate(process.stdout, 1):
            if number == kill_after:
                process.kill()
    return process.returncode


def judged(log: Path) -> list[str]:
    """The hashes of the sources one server was asked to evaluate."""
    entries: list[dict[str, Any]] = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return [digest(entry["source"]) for entry in entries if not entry["fresh"]]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("unbroken")
    assert play(directory / "run", directory / "log") == 0
    return directory


def test_an_unbroken_run_judges_no_source_twice(unbroken: Path) -> None:
    asked = judged(unbroken / "log")
    assert len(asked) == len(set(asked)) == len(read(unbroken / "run").evaluations) > 20


@pytest.mark.parametrize(
    ("seed", "kills", "apart"),
    [
        (1, 2, 14),
        *(pytest.param(seed, 5, 14, marks=pytest.mark.long) for seed in range(1, 8)),
        *(pytest.param(seed, 20, 4, marks=pytest.mark.long) for seed in (8, 9)),
    ],
)
def test_a_run_killed_at_random_moments_ends_like_an_unbroken_one(
    unbroken: Path, tmp_path: Path, seed: int, kills: int, apart: int
) -> None:
    """A resumed run is killed after at most `apart` of its lines, so that all of the kills fall inside it."""
    directory, moments = tmp_path / "run", random.Random(seed)
    kept: dict[str, Evaluation] = {}
    for kill in range(kills):
        assert play(directory, tmp_path / f"log{kill}", moments.randint(1, apart)) == -9
        assert not kept.keys() & set(judged(tmp_path / f"log{kill}")), "a recorded evaluation was repeated"
        recorded = read(directory).evaluations
        assert recorded.items() >= kept.items(), "a recorded evaluation was lost"
        kept = dict(recorded)
    assert 0 < len(kept) < len(read(unbroken / "run").evaluations), "the kills fell outside the run"
    assert play(directory, tmp_path / "log") == 0
    assert not kept.keys() & set(judged(tmp_path / "log"))
    assert read(directory).evaluations.items() >= kept.items()
    assert (directory / "standings.json").read_text() == (unbroken / "run" / "standings.json").read_text()


def test_a_finished_run_resumed_asks_for_nothing(unbroken: Path) -> None:
    before = (unbroken / "run" / "standings.json").read_text()
    assert play(unbroken / "run", unbroken / "log2") == 0
    assert not (unbroken / "log2").exists()
    assert (unbroken / "run" / "standings.json").read_text() == before
