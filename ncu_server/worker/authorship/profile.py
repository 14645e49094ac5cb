"""Who does the work of a candidate: what the profiler sees of its calls, taken in its own process after the timing.

Seen: every ATen operator on every thread, also those called from C++ or under disabled dispatch; every call of a
function of the candidate's own libraries (they are wrapped here, where the candidate keeps them); on CUDA every kernel
with its device time, whoever launched it. Not seen: NumPy, BLAS and other native libraries (only as time in which
neither a kernel of its own nor ATen ran, or inside a call of its own), and functions kept where the collector cannot
replace them (tuples, partials), until a model is made anew.

The process belongs to the candidate, so none of this holds against code that fights it: it can ask whether a profiler
runs and compute otherwise then, or patch this module. The profiler's C functions are bound when the fork server imports
this module, before any candidate's code, so that replacing `torch.profiler` changes nothing; marks carry a random name,
so that a label of the candidate's own cannot pose as one.
"""

from __future__ import annotations

import bisect
import contextlib
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal
from unittest.mock import patch

import torch

from ncu_server.rules.authorship import LIBRARY, computes
from ncu_server.worker import private
from ncu_server.worker.answers import CallProfile
from ncu_server.worker.authorship.instrument import Watch
from ncu_server.worker.tensors import flatten

_ExperimentalConfig = private.take("torch._C._profiler._ExperimentalConfig")
_RecordFunctionFast = private.take("torch._C._profiler._RecordFunctionFast")
DeviceType = private.take("torch.autograd.DeviceType")
ProfilerActivity = private.take("torch.autograd.ProfilerActivity")
ProfilerConfig = private.take("torch.autograd.ProfilerConfig")
ProfilerState = private.take("torch.autograd.ProfilerState")
_disable_profiler = private.take("torch.autograd._disable_profiler")
_enable_profiler = private.take("torch.autograd._enable_profiler")
_prepare_profiler = private.take("torch.autograd._prepare_profiler")
_sleep = private.take("torch.cuda._sleep")
# Calls are profiled until this much time has gone, so that a share rests on many short calls or on one long one.
SECONDS = 0.2
PIECE = 1 << 24  # elements that are compared at once
MAX_CALLS = 20
UNLIKE = 3.0  # what noise does not do to the least of several calls
# A call over so few elements costs what any call costs: on two cores of an EPYC, profiled, 3 to 16 us an operator of
# 100 elements, more while others compute; a kernel that does nothing 1 to 2.5 us of an H200.
TINY, OPERATOR_US, KERNEL_US = 1024, 20.0, 3.0
LEAST_ELEMENTS = 64  # that a tiny call counts for, so that calls of one element are not without end
LISTS = {"TensorList", "GenericList", "OptionalTensorList"}
LEAD_CYCLES = 1_000_000  # half a millisecond
SPIN = "spin_kernel"  # torch.cuda._sleep's
Table = defaultdict[str, dict[int, float]]  # name -> call -> microseconds
# Namespaces of operators that are not the candidate's: all that there are before any candidate is loaded, and those
# that torch and packages around it register when they are imported.
LIBRARIES = {schema.name.partition("::")[0] for schema in private.take("torch._C._jit_get_all_schemas")()} | {
    "ao",
    "autograd",
    "c10d_functional",
    "fbgemm",
    "flex_lib",
    "inductor",
    "quantized_decomposed",
    "semi_structured",
    "torch_attn",
    "torchao",
    "torchaudio",
    "torchvision",
    "xformers",
    "xnnpack",
}


def profile_calls(
    run: Callable[[], Any],
    settle: Callable[[], None],
    watch: Watch,
    launches: bool,
    ready: Callable[[], None] | None = None,
) -> CallProfile:
    """Profile `run` for about 0.2 s, at least once and at most 20 times, and sum up what was seen; `ready` comes before
    each time, unseen.

    Times are microseconds. `ops` (operators of torch that ran on the host and launched nothing) and `kernels` map a
    name to its self time over all `calls`; `own_ops_us` is that of all operators that the candidate has registered;
    `own_us` is the time in functions of its libraries without what torch did for them, over all calls; `outside_us` is
    what one call spends in neither. The slowest quarter of the calls is left out of each sum. `least` is the least time
    of any call, for what every call does. `overhead` is how much of `ops` and `kernels` is the fixed cost of calls over
    at most TINY elements, and `tiny_elements` how many these go over in one call. `unordered_us` is device work outside
    the caller's stream order, over all calls.
    """
    watch.started = watch.done = 0
    run = frame(run) if launches else run
    began = time.perf_counter()
    events = _collect(run, settle, watch, launches, 1, ready)
    took = time.perf_counter() - began
    calls = 1
    if took < SECONDS:
        began = time.perf_counter()
        watch.started = watch.done = 0
        calls = 3 if took * 3 > SECONDS else MAX_CALLS
        events = _collect(run, settle, watch, launches, calls, ready)
    return _summed(events, watch)


def frame(run: Callable[[], Any]) -> Callable[[], Any]:
    """`run` between two kernels of ours on the caller's stream: what it launches belongs behind the first and before
    the second. The first spins for so long that what does not wait for it starts at once."""

    def call() -> Any:
        stream = torch.cuda.current_stream()
        _sleep(LEAD_CYCLES)
        out = run()
        with torch.cuda.stream(stream):
            _sleep(1)
        return out

    return call


def _collect(
    run: Callable[[], Any],
    settle: Callable[[], None],
    watch: Watch,
    launches: bool,
    calls: int,
    ready: Callable[[], None] | None,
) -> list[Any]:
    if not ready:
        return _recorded(run, settle, watch, launches, calls)
    began, events = time.perf_counter(), []
    for _ in range(calls):
        ready()
        settle()
        events += _recorded(run, settle, watch, launches, 1)
        if time.perf_counter() - began > SECONDS:
            break
    return events


def _recorded(
    run: Callable[[], Any], settle: Callable[[], None], watch: Watch, launches: bool, calls: int
) -> list[Any]:
    config = ProfilerConfig(
        ProfilerState.KINETO, True, False, False, False, False, _ExperimentalConfig(profile_all_threads=True), ""
    )
    activities = {ProfilerActivity.CPU} | ({ProfilerActivity.CUDA} if launches else set())
    _prepare_profiler(config, activities)
    _enable_profiler(config, activities)
    began = time.perf_counter()
    try:
        for _ in range(calls):
            with _RecordFunctionFast(watch.call):
                run()
            settle()
            if time.perf_counter() - began > SECONDS:
                break
    finally:
        result = _disable_profiler()
    return list(result.events())


def _summed(events: list[Any], watch: Watch) -> CallProfile:
    starts = sorted(e.start_ns() for e in events if e.name() == watch.call and e.device_type() == DeviceType.CPU)
    tables: dict[str, Table] = {
        kind: defaultdict(lambda: defaultdict(float))
        for kind in ("ops", "own_ops", "kernels", "marks", "launching", "elsewhere", "overhead", "tiny")
    }
    tiny = _tiny(events)
    threads: dict[int, list[Any]] = defaultdict(list)

    def add(kind: str, name: str, us: float, start: int) -> None:
        tables[kind][name][bisect.bisect_right(starts, start)] += us

    for event in events:
        ours = event.name() in (watch.call, watch.own)
        if event.device_type() == DeviceType.CPU:
            if ours or not event.is_user_annotation():
                threads[event.start_thread_id()].append(event)
        elif not ours and not event.is_user_annotation() and SPIN not in event.name():
            us = event.duration_ns() / 1e3
            add("kernels", event.name(), us, event.start_ns())
            if event.linked_correlation_id() in tiny:
                add("overhead", event.name(), min(us, KERNEL_US), event.start_ns())
    for rows in threads.values():
        caller = any(e.name() == watch.call for e in rows)
        for name, us, launches, start, number in _self_times(rows):
            if number in tiny and not _is_own(name):
                add("tiny", "", max(tiny[number], LEAST_ELEMENTS) * computes(name), start)
                add("overhead", name, 0.0 if launches else min(us, OPERATOR_US), start)
            ours = name in (watch.call, watch.own)
            operators = "own_ops" if _is_own(name) else "ops"
            add("marks" if ours else "launching" if launches else operators, name, us, start)
            if not ours and not caller:
                add("elsewhere", "", us, start)
    calls = max(len(starts), 1)
    device = [e for e in events if e.device_type() != DeviceType.CPU and not e.is_user_annotation()]
    elsewhere = _trimmed(tables["elsewhere"][""], calls)
    return {
        "calls": calls,
        "ops": {name: _trimmed(times, calls) for name, times in tables["ops"].items()},
        "kernels": {name: _trimmed(times, calls) for name, times in tables["kernels"].items()},
        "overhead": {name: _trimmed(times, calls) for name, times in tables["overhead"].items()},
        "tiny_elements": _trimmed(tables["tiny"][""], calls) / calls,
        "own_ops_us": sum(_trimmed(times, calls) for times in tables["own_ops"].values()),
        "own_us": max(0.0, _trimmed(tables["marks"][watch.own], calls) - elsewhere),
        "least": {n: min(t.values()) for k in ("ops", "kernels") for n, t in tables[k].items() if len(t) == calls},
        "unordered_us": _unordered(device, calls),
        "outside_us": max(0.0, (_trimmed(tables["marks"][watch.call], calls) - elsewhere) / calls),
        "own_started": watch.started,
        "own_done": watch.done,
    }


def _tiny(events: list[Any]) -> dict[int, int]:
    """The operators that go over at most TINY elements, by correlation id, and how many these are."""
    found = {}
    for event in events:
        if event.device_type() == DeviceType.CPU and "::" in event.name():
            elements = elements_of(event.shapes(), event.dtypes())
            if elements is not None and elements <= TINY:
                found[event.correlation_id()] = elements
    return found


def elements_of(shapes: Sequence[Sequence[int]], dtypes: Sequence[str]) -> int | None:
    """How many elements an operator goes over where its tensors are broadcast; None where that cannot be told."""
    tensors = [shape for shape, dtype in zip(shapes, dtypes, strict=False) if dtype and not dtype.startswith("Scalar")]
    if not tensors or LISTS & set(dtypes):
        return None
    try:
        return int(math.prod(torch.broadcast_shapes(*map(tuple, tensors))))
    except (RuntimeError, TypeError):
        return None


def _is_own(operator: str) -> bool:
    space, colons, _ = operator.partition("::")
    return bool(colons) and space not in LIBRARIES


def _unordered(events: list[Any], calls: int) -> float:
    """Microseconds of device work that did not wait for the caller's stream, or that the stream did not wait for; see
    framed. All of it where there are more frames than ours."""
    spins = sorted((e for e in events if SPIN in e.name()), key=lambda e: e.start_ns())
    work = [e for e in events if SPIN not in e.name()]
    if len(spins) > 2 * calls:
        return float(sum(e.duration_ns() for e in work)) / 1e3
    out = 0.0
    for lead, tail in zip(spins[::2], spins[1::2], strict=False):
        for event in work:
            late = event.start_ns() < tail.start_ns() < event.start_ns() + event.duration_ns()
            if lead.start_ns() <= event.start_ns() < lead.start_ns() + lead.duration_ns() or late:
                out += event.duration_ns() / 1e3
    return out


def _trimmed(times: Mapping[int, float], calls: int) -> float:
    """The sum over all calls, taken from those below the upper quarter: a process that was set aside for a while in one
    of them does not show as work."""
    kept = sorted([*times.values(), *[0.0] * (calls - len(times))])[: calls - calls // 4]
    return sum(kept) * calls / max(len(kept), 1)


def _self_times(events: list[Any]) -> list[tuple[str, float, bool, int, int]]:
    """Of each event of one thread its name, its time without nested events in microseconds, and whether it or one
    nested in it is a call of the CUDA driver or runtime, its start in nanoseconds, and its correlation id."""
    out: list[list[Any]] = []
    stack: list[tuple[int, list[Any]]] = []
    for event in sorted(events, key=lambda e: (e.start_ns(), -e.duration_ns())):
        start, length = event.start_ns(), event.duration_ns()
        while stack and stack[-1][0] <= start:
            stack.pop()
        if stack:
            stack[-1][1][1] -= length / 1e3
        row = [event.name(), length / 1e3, False, start, event.correlation_id()]
        out.append(row)
        stack.append((start + length, row))
        if event.name().startswith("cu"):
            for _, around in stack:
                around[2] = True
    return [(name, max(0.0, us), launches, start, number) for name, us, launches, start, number in out]


def join(first: CallProfile, seen: CallProfile) -> CallProfile:
    """What two profiles show together: of kernels, or where there are none of operators, the more, and of functions of
    its own no more than what the first had outside torch. A candidate may know when it is watched, or made anew.

    The host's times are not joined where kernels run on a device: the first profiled call meets the tracer's set-up.
    """
    share = seen["calls"] / first["calls"]

    def more(one: dict[str, float], other: dict[str, float]) -> dict[str, float]:
        before = {name: us * share for name, us in one.items()}
        return {name: max(before.get(name, 0.0), other.get(name, 0.0)) for name in before | other}

    def work(profile: CallProfile, kind: Literal["ops", "kernels"]) -> dict[str, float]:
        return {name: us - profile["overhead"].get(name, 0.0) for name, us in profile[kind].items()}

    def joined(kind: Literal["ops", "kernels"]) -> tuple[dict[str, float], dict[str, float]]:
        whole, least = more(first[kind], seen[kind]), more(work(first, kind), work(seen, kind))
        return whole, {name: whole[name] - us for name, us in least.items() if whole[name] > us}

    (ops, of_ops), (kernels, of_kernels) = joined("ops"), joined("kernels")
    if seen["kernels"]:
        ops, of_ops = seen["ops"], {name: seen["overhead"].get(name, 0.0) for name in seen["ops"]}
    own_us = min(seen["own_us"], first["outside_us"] * seen["calls"])
    return {
        **seen,
        "ops": ops,
        "kernels": kernels,
        "overhead": of_ops | of_kernels,
        "tiny_elements": max(first["tiny_elements"], seen["tiny_elements"]),
        "own_us": own_us,
    }


def find_concealed(unaware: CallProfile, seen: CallProfile) -> dict[str, float]:
    """Operators and kernels that took several times as long before the candidate's functions were wrapped: microseconds
    of one call. A candidate that knows whether it is watched computes otherwise then."""
    found: dict[str, float] = {}
    for name, before in unaware["least"].items():
        after = seen["least"].get(name, 0.0)
        if before > UNLIKE * after and (not after or seen["calls"] > 2):
            found[name] = before - after
    return found


def dependence(
    full: list[torch.Tensor],
    prepare: Callable[[], Callable[[], Any]],
    spoil: Callable[[list[torch.Tensor]], None],
    watch: Watch,
    given: list[torch.Tensor] | None = None,
) -> float:
    """Share of the output's elements that come out otherwise when the candidate's own kernels do nothing.

    `full` is what a model made anew gives with its kernels, `prepare` gives a call of another on a copy of the same
    inputs: neither what an earlier call has kept or changed nor that the model is not the first one makes a difference.
    `spoil` leaves a pattern in free memory of the outputs' sizes. Where the inputs are `given`, elements that stay zero
    or an input's own do not count, unless that is nearly all: it takes nobody's kernel to leave them. Raises what the
    candidate raises without its kernels.
    """
    with _silence(watch):
        again = prepare()
        spoil(full)
        _, mute = flatten(again())
    del again
    if [(t.shape, t.dtype) for t in full] != [(t.shape, t.dtype) for t in mute]:
        return 1.0
    changed = counted = 0
    for a, b in zip(full, mute, strict=True):
        alike = [_rows(t) for t in given or () if (t.shape, t.dtype, t.device) == (b.shape, b.dtype, b.device)]
        for one, other, *inputs in zip(*(rows.split(PIECE) for rows in (_rows(a), _rows(b), *alike)), strict=True):
            differs = (one != other).any(dim=1)
            left = ~differs & _untouched(other, inputs) if given is not None else differs.new_zeros(())
            changed += int(differs.sum())
            counted += len(one) - int(left.sum())
    whole = changed / max(sum(t.numel() for t in full), 1)
    return whole if whole < LIBRARY else changed / counted


def _untouched(rows: torch.Tensor, given: Sequence[torch.Tensor]) -> torch.Tensor:
    """Which elements, in order, are zero or what an input of the same kind has at their place."""
    found = (rows == 0).all(dim=1)
    for one in given:
        found |= (rows == one).all(dim=1)
    return found


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1, 1).view(torch.uint8)


@contextlib.contextmanager
def _silence(watch: Watch) -> Iterator[None]:
    """Nothing of the candidate's own runs inside, Triton's launches included."""
    jitted = private.take_if_imported("triton.runtime.jit.JITFunction")
    with contextlib.ExitStack() as stack:
        if jitted is not None:
            stack.enter_context(patch.object(jitted, "run", lambda *_, **__: None))
        watch.silent = True
        watch.rewind()
        yield
