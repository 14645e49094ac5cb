"""A module tried by itself, in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

from ncu_server.worker import handoff

TRIED = "import sys; from ncu_server.worker import alone; alone.main(sys.argv[1])"

PROBLEM = """
import torch

class Model(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = torch.nn.Linear(features, 4)

    def forward(self, x):
        return self.linear(x)

def get_inputs():
    with open({drawn!r}, "a") as told:
        told.write("x")
    return [torch.rand(8, 16)]

def get_init_inputs():
    return [16]
"""
MODULE = """
import torch

class ModelNew(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = torch.nn.Linear(features, 4)

    def forward(self, x):
        return x @ self.linear.weight.T + self.linear.bias {more}
"""


def test_inputs_are_drawn_twice_however_many_trials_read_them(tmp_path: Path) -> None:
    checks, drawn = tried(tmp_path, MODULE.format(more=""))
    assert checks == dict.fromkeys(["builds", "agrees", "state_dict", "to", "compile"], True)
    assert drawn == 2, "what reads the mode, and what all trials share: of gigabytes each takes seconds on a host"


def test_a_module_that_gives_another_answer_is_told_in_a_sentence(tmp_path: Path) -> None:
    checks, _ = tried(tmp_path, MODULE.format(more="+ 1"))
    assert checks["builds"] and checks["agrees"] is False


def test_why_a_module_is_not_compiled_is_told_in_its_own_words(tmp_path: Path) -> None:
    refusal = "if torch.compiler.is_compiling():\n            raise RuntimeError('its reason')\n        return"
    raises = MODULE.replace("return", refusal)
    checks, _ = tried(tmp_path, raises.format(more=""))
    assert checks["agrees"] and checks["compile"] is False
    rows = [json.loads(row) for row in (tmp_path / handoff.TOLD).read_text().splitlines()]
    assert "its reason" in next(row["why"] for row in rows if row.get("name") == "compile")


def tried(place: Path, module: str) -> tuple[dict[str, bool], int]:
    """What held, of what can be tried here, and how often inputs were drawn."""
    drawn = place / "drawn"
    (place / handoff.FILE).write_text(module)
    problem = PROBLEM.format(drawn=str(drawn))
    spec = {"problem": problem, "device": "cpu", "seed": 3}
    os.mkfifo(place / handoff.GO)
    go = os.open(place / handoff.GO, os.O_RDWR)
    os.write(go, b"\n")
    (place / handoff.SPEC).write_text(json.dumps(spec))
    subprocess.run([sys.executable, "-c", TRIED, str(place)], check=True)
    rows = [json.loads(row) for row in (place / handoff.TOLD).read_text().splitlines()]
    found = {row["name"]: row["ok"] for row in rows if "name" in row and row["ok"] is not None}
    return found, len(drawn.read_text())
