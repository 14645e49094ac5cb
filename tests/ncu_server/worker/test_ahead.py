"""Compiling before the device is had: nothing runs, nothing is measured, and the real first call finds the code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from ncu_server.worker.tracing.launch_times import CALLS
from tests.support.paths import ROOT

PARTS = """
import contextlib, io, json, os, pathlib, torch
from torch._inductor.runtime import benchmarking
from ncu_server.worker.tracing.ahead import compile_ahead
from ncu_server.worker.timing.devices import Cpu
from ncu_server.worker.tracing.inductor import launches
from ncu_server.worker.tracing.launch_times import launch_times

class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))
        self.outside = 0

    def forward(self, x):
        self.calls += 1
        self.outside += 1
        return x * 2 + self.calls

class Breaking(Counting):
    def forward(self, x):
        self.calls += 1
        print(x.sum().item())
        return x * 2

def built():
    return sorted(str(path) for path in pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).rglob("*.so"))

x = torch.arange(64.0)
told = {}
"""
WHOLE = """
model = Counting()
told["all"] = compile_ahead(model, "default", ([x], {}))
told["called"] = [model.calls.item(), model.outside]
told["built"] = built()
with torch.no_grad():
    told["right"] = torch.equal(torch.compile(model, dynamic=False)(x), x * 2 + 1)
told["built then"], told["calls then"], told["launches"] = built(), model.calls.item(), launches()
layer = torch.nn.Linear(256, 256).eval()
layered, rows = torch.compile(lambda x: (layer(x) * 2).tanh(), dynamic=False), torch.ones(512, 256)
with torch.no_grad():
    layered(rows)
resets = []
told["times"] = launch_times(lambda: layered(rows), Cpu(), lambda: resets.append(1))
told["resets"] = len(resets)
"""
PARTLY = """
torch._inductor.config.freezing = True  # or a CPU chooses among nothing
model, printed = Breaking(), io.StringIO()
with contextlib.redirect_stdout(printed):
    told["breaking"] = compile_ahead(model, "default", ([x], {}))
told["ran"] = [printed.getvalue(), model.calls.item()]
measured, kind, linear = [], type(benchmarking.benchmarker), torch.nn.Linear(256, 256).eval()
for name in [name for name in dir(kind) if name.startswith("benchmark")]:
    setattr(kind, name, lambda *_, **__: measured.append(1) or 1.0)
told["measuring"] = compile_ahead(linear, "max-autotune-no-cudagraphs", ([torch.ones(256, 256)], {}))
told["measured"], told["left"] = len(measured), [n for n in vars(benchmarking.benchmarker) if n.startswith("benchmark")]
del torch._dynamo.lookup_backend
told["lacking"] = compile_ahead(Counting(), "default", ([x], {}))
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All that is told by one process, whose compiler starts from nothing: that alone takes ten seconds."""
    pytest.importorskip("torch")
    around = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path_factory.mktemp("inductor")), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    around["OMP_NUM_THREADS"] = "1"
    command = [sys.executable, "-c", PARTS + WHOLE + PARTLY]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | around, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def test_a_model_is_compiled_without_being_called(found: dict[str, Any]) -> None:
    assert found["all"] and found["called"] == [0, 0] and found["built"]
    assert found["right"] and found["calls then"] == 1
    assert found["built then"] == found["built"], "the first call compiled again"
    assert found["launches"] and len(found["launches"]) == len(set(found["launches"]))


def test_each_launch_of_a_compiled_call_has_its_time(found: dict[str, Any]) -> None:
    product, tail = found["times"]
    assert product["name"] == "aten::addmm" and tail["name"].startswith("cpp_fused_") and "tanh" in tail["name"]
    assert found["resets"] == CALLS and all(row["launches"] == 1 and row["us"] > 0 for row in found["times"])


def test_what_cannot_be_compiled_ahead_runs_nothing_and_measures_nothing(found: dict[str, Any]) -> None:
    assert found["breaking"] is False and found["ran"] == ["", 0.0]
    assert found["lacking"] is False
    assert found["measuring"] is False and found["measured"] == 0 and found["left"] == []
