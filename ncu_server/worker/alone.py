"""A module tried by itself, as a person would: imported from a folder of its own, then used in the ways of torch.

Nothing is compiled or set up for it here. What came of each trial is a line of TOLD: its name, whether it held (null
where it cannot be tried here), and why not.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from ncu_server.worker import private
from ncu_server.worker.building.modules import Arguments, build, put_in_mode
from ncu_server.worker.calls import Call, called
from ncu_server.worker.generators import trains
from ncu_server.worker.handoff import AGREES, BEGUN, BUILDS, FILE, GO, SPEC, TOLD
from ncu_server.worker.problem import INPUTS, MISREAD, LoadedProblem
from ncu_server.worker.tensors import flatten, mapped
from ncu_server.worker.timing.devices import DEVICES

NEAR = 1e-2
"""How far outputs may be apart, in shares of their root mean square and of themselves: the judge holds them closer."""
WARM_UPS = 3


class Untried(Exception):  # noqa: N818
    """Something that cannot be tried with this module or here."""


def main(directory: str) -> None:
    """Build the module in `directory`, say so with a line of output, then wait for GO to use it as SPEC says."""
    place = Path(directory)
    spec = json.loads((place / SPEC).read_text())
    with (place / TOLD).open("a", buffering=1) as told:

        def tell(name: str, work: Callable[[], Any]) -> Any:
            told.write(json.dumps({BEGUN: name}) + "\n")
            ok, why, given = _tried(work)
            told.write(json.dumps({"name": name, "ok": ok, "why": why}) + "\n")
            return given

        module = tell(BUILDS, lambda: _imported(place / FILE))
        if module is not None:
            with suppress(ImportError, AttributeError):
                private.take("torch._dynamo.lookup_backend")  # its import takes seconds
            sys.stdout.write("\n")
            sys.stdout.flush()
            (place / GO).open("rb").read(1)
            with torch.no_grad():
                _use(Used(module, spec["problem"], spec["device"], spec["seed"]), tell)


def _tried(work: Callable[[], Any]) -> tuple[bool | None, str, Any]:
    try:
        return True, "", work()
    except Untried as reason:
        return None, str(reason), None
    except torch.OutOfMemoryError:
        return None, "there is not enough memory on the device to try it", None
    except BaseException as fault:  # noqa: BLE001  whatever the module raises is its own
        return False, _words(fault), None


def _words(fault: BaseException) -> str:
    """A fault in a line: of a compiler's log, the first error in it."""
    rows = [row.strip() for row in str(fault).splitlines() if row.strip()]
    first = next((row for row in rows if "error:" in row.lower() and " -o " not in row), rows[0] if rows else "")
    return f"{type(fault).__name__}: {first}"[:500]


def _imported(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file.name} is no module")
    module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, "ModelNew"):
        raise AttributeError("the module defines no `ModelNew`")
    return module


def _use(used: Used, tell: Callable[[str, Callable[[], Any]], Any]) -> None:
    for name, trial in TRIALS:
        tell(name, partial(trial, used))


class Used:
    """A module and the problem that it stands for, on a device."""

    def __init__(self, module: ModuleType, problem: str, device: str, seed: int) -> None:
        self.module, self.device, self.seed = module, device, seed
        self.problem = LoadedProblem(problem)

    def reference(self, further: int = 0) -> torch.nn.Module:
        """The problem's model, made anew; `further` gives it other parameters."""
        return self._built(further)[0]

    def _built(self, further: int) -> tuple[torch.nn.Module, Arguments]:
        model, arguments = self.problem.built(self.seed + further, self.device)
        put_in_mode(model, self.training)
        return model, arguments

    def model(self) -> torch.nn.Module:
        """The module's, made anew."""
        return build(self.module.ModelNew, copy.deepcopy(self._sample[1]), self.seed, self.device, self.training)

    def inputs(self, device: str, further: int = 0) -> Call:
        """What the model is called with, on a device; `further` gives it other values."""
        return _on(self._drawn(further) if further else self._first, device)

    @cached_property
    def training(self) -> bool:
        """The mode that the problem's model is in: not training where it draws random numbers then."""
        model, _ = self.problem.built(self.seed, self.device)
        calls = self.problem.drawn_on(self.device, INPUTS, self.seed, model.forward)
        return trains(model, (_on(call, self.device) for call in calls))

    @cached_property
    def _sample(self) -> tuple[torch.nn.Module, Arguments]:
        """A model that tells what calls fit, and what all are constructed with: to construct one can take seconds."""
        return self._built(0)

    @cached_property
    def _first(self) -> Call:
        return self._drawn(0)

    def _drawn(self, further: int) -> Call:
        """Inputs of gigabytes are made on the device, where that takes milliseconds."""
        model, _ = self._sample
        *calls, last = self.problem.drawn_on(self.device, INPUTS, self.seed + further, model.forward)
        for call in calls:
            try:
                called(model, _on(call, self.device))
            except MISREAD:
                continue
            return _moved(call, self.device)
        return _moved(last, self.device)

    @property
    def changes(self) -> bool:
        """Whether a call of the reference changes its buffers, so that a second one need not give the same."""
        reference = self.reference()
        before = {name: buffer.clone() for name, buffer in reference.named_buffers()}
        called(reference, self.inputs(self.device))
        return any(not torch.equal(before[name], buffer) for name, buffer in reference.named_buffers())


def _on(call: Call, device: str) -> Call:
    """A copy there, which a call may change."""
    return _moved(copy.deepcopy(call), device)


def _moved(call: Call, device: str) -> Call:
    moved: Call = mapped(call, lambda tensor: tensor.to(device))
    return moved


def _agrees(used: Used) -> None:
    _near(called(used.model(), used.inputs(used.device)), called(used.reference(), used.inputs(used.device)))


def _state_dict(used: Used) -> None:
    other = used.reference(further=1)
    if not other.state_dict():
        raise Untried("the original has no parameters and no buffers")
    model = used.model()
    model.load_state_dict(other.state_dict())
    _near(called(model, used.inputs(used.device)), called(other, used.inputs(used.device)))


def _to(used: Used) -> None:
    model, first = used.model(), used.model()
    moved = model.to("cpu").to(used.device)
    _near(called(moved, used.inputs(used.device)), called(first, used.inputs(used.device)))


def _compile(used: Used) -> None:
    compiled = torch.compile(used.model(), fullgraph=True)
    try:
        out = called(compiled, used.inputs(used.device))
    except Exception as fault:  # noqa: BLE001  torch's own follows from what the module raised
        raise fault.__cause__ or fault from None
    _near(out, called(used.model(), used.inputs(used.device)))


def _cuda_graph(used: Used) -> None:
    if not DEVICES[used.device].has_graphs:
        raise Untried("the module runs on the CPU")
    if used.changes:
        raise Untried("a call changes buffers of the model")
    model, static = used.model(), used.inputs(used.device)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UPS):
            called(model, static)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = called(model, static)
    other = used.inputs(used.device, further=1)
    for held, new in zip(flatten(static)[1], flatten(other)[1], strict=True):
        held.copy_(new)
    graph.replay()
    torch.cuda.synchronize()
    _near(out, called(model, other))


def _second_gpu(used: Used) -> None:
    if DEVICES[used.device].count() < 2:
        raise Untried("there is no second GPU here")
    one, other = f"{used.device}:0", f"{used.device}:1"
    first, second = used.model(), used.model().to(other)
    out = called(second, used.inputs(other))
    if any(tensor.device != torch.device(other) for tensor in flatten(out)[1]):
        raise ValueError("on the second GPU its outputs are on another")
    _near(mapped(out, lambda tensor: tensor.to(one)), called(first, used.inputs(one)))


TRIALS: tuple[tuple[str, Callable[[Used], None]], ...] = (
    (AGREES, _agrees),
    ("state_dict", _state_dict),
    ("to", _to),
    ("cuda_graph", _cuda_graph),
    ("second_gpu", _second_gpu),
    ("compile", _compile),
)


def _near(out: Any, expected: Any) -> None:
    """Raise ValueError where outputs differ in structure, shape, dtype, or by more than NEAR."""
    (form, tensors), (wanted, right) = flatten(out), flatten(expected)
    if form != wanted:
        raise ValueError("its outputs have another structure than the original's")
    for place, differs in enumerate(_differences(tensors, right)):
        if differs:
            raise ValueError(f"output {place} {differs}")


def _differences(tensors: list[torch.Tensor], right: list[torch.Tensor]) -> Iterator[str | None]:
    for tensor, wanted in zip(tensors, right, strict=True):
        if tensor.shape != wanted.shape or tensor.dtype != wanted.dtype or tensor.device != wanted.device:
            yield "has another shape, dtype or device than the original's"
        elif not wanted.is_floating_point():
            off = int((tensor != wanted).sum())
            yield f"differs in {off} of {wanted.numel()} elements" if off > wanted.numel() * NEAR / 10 else None
        else:
            yield _apart(tensor, wanted)


def _apart(tensor: torch.Tensor, wanted: torch.Tensor) -> str | None:
    wide = wanted.float() if wanted.element_size() < 4 else wanted
    finite = torch.isfinite(wide)
    scale = float(torch.where(finite, wide, 0).square().mean().sqrt()) if wide.numel() else 0.0
    near = torch.isclose(tensor.to(wide.dtype), wide, rtol=NEAR, atol=NEAR * scale, equal_nan=True)
    return None if bool(near.all()) else f"is off in {int((~near).sum())} of {near.numel()} elements"
