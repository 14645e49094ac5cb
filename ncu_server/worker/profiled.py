"""The process that ncu profiles: loads candidates one after another, calls each once with the profiler on.

What it compiles is nothing; libraries and kernels are those of the build. It runs until a candidate ends it.
"""

from __future__ import annotations

import copy
import json
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ncu_server.worker.building import triton_cache
from ncu_server.worker.building.load_inline import Libraries
from ncu_server.worker.building.modules import Arguments, build, load
from ncu_server.worker.calls import Call, called
from ncu_server.worker.generators import trains
from ncu_server.worker.handoff import OUTPUT, RANGE, SPEC, TOLD, TRACE
from ncu_server.worker.problem import INPUTS, MISREAD, LoadedProblem
from ncu_server.worker.tensors import copied, mapped
from ncu_server.worker.timing.devices import DEVICES

WARM_UPS, TAIL = 2, 4000


def main(directory: str) -> None:
    """Do what SPEC in `directory` says, and write to TOLD what became of each candidate."""
    place = Path(directory)
    spec = json.loads((place / SPEC).read_text())
    out = os.open(place / OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(out, 1)
    os.dup2(out, 2)
    DEVICES[spec["device"]].settle()
    record = _traced if spec["timeline"] else _counted
    with (place / TOLD).open("a", buffering=1) as told:
        for candidate in spec["candidates"]:
            told.write(json.dumps({"candidate": candidate["number"], "begun": ""}) + "\n")
            told.write(json.dumps({"candidate": candidate["number"]} | _outcome(spec, candidate, place, record)) + "\n")


def _outcome(
    spec: dict[str, Any], candidate: dict[str, Any], place: Path, record: Callable[..., None]
) -> dict[str, str]:
    """What became of one: `done`, or `fault` with its trace."""
    try:
        with Libraries.loading(candidate["libraries"], {}), torch.no_grad():
            call = _caller(spec, candidate)
            for _ in range(WARM_UPS):
                call()
            DEVICES[spec["device"]].settle()
            record(call, candidate["number"], spec["device"], place)
    except BaseException:  # noqa: BLE001  whatever a candidate raises is its own fault
        return {"fault": traceback.format_exc()[-TAIL:]}
    return {"done": ""}


def _caller(spec: dict[str, Any], candidate: dict[str, Any]) -> Callable[[], Any]:
    device = spec["device"]
    given, inputs, training = _arguments(spec["problem"], spec["seed"], device)
    if candidate["kernels"]:
        triton_cache.only_read(Path(candidate["kernels"]))
    module = load(candidate["source"], "candidate", "ModelNew")
    arguments = mapped(given, lambda tensor: tensor)  # of the candidate's own classes
    with torch.enable_grad():
        model = build(module.ModelNew, arguments, spec["seed"], device, training)
    return lambda: called(model, inputs)


def _arguments(source: str, seed: int, device: str) -> tuple[Arguments, Call, bool]:
    """What the problem's model is constructed and called with, on the device, and whether it trains when judged."""
    problem = LoadedProblem(source)
    model, given = problem.built(seed, device)
    calls = [copied(call, device) for call in problem.drawn_on(device, INPUTS, seed, model.forward)]
    training = trains(model, calls)
    for call in calls[:-1]:
        try:
            called(model, copy.deepcopy(call))
        except MISREAD:
            continue
        return given, call, training
    return given, calls[-1], training


def _counted(call: Callable[[], Any], number: int, device: str, place: Path) -> None:
    """One call inside a range of its own, with ncu's eyes open."""
    DEVICES[device].watched(call, RANGE.format(number))


def _traced(call: Callable[[], Any], number: int, device: str, place: Path) -> None:
    """One call under torch's own profiler, whose trace names the kernels, their times and launches."""
    with torch.profiler.profile(activities=DEVICES[device].activities) as profiler:
        call()
        DEVICES[device].settle()
    profiler.export_chrome_trace(str(place / TRACE.format(number)))
