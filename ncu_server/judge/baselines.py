"""PyTorch's own times: eager and the modes of torch.compile, measured once and kept on disk."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from ncu_server.judge.compiling import compile_ahead
from ncu_server.judge.interleave import alternate, combine
from ncu_server.judge.modes import BASELINES, GRAPHED, UNGRAPHED
from ncu_server.judge.problem import PreparedProblem
from ncu_server.judge.trusted import PREPARE_TIMEOUT_S, ours
from ncu_server.machine.lease import Progress
from ncu_server.sandbox.child import Child, ChildError
from ncu_server.wire import evaluation
from ncu_server.worker import verbs
from ncu_server.worker.answers import LaunchTime

FORMAT = "6"  # 5: without the times of what is launched
SAMPLING_S = 3.0
NOISY = 0.25
"""Width of a time's interval, as a share of it, from which it is measured once more, and said to be uncertain."""
GAP_US = 3.0
"""More than what a graph saves a launch on the device: gaps of 1 to 2 us in a stream, about 1 us within a graph."""

KERNELS_SHOWN, NAME_SHOWN = 12, 200
Rows = TypeAdapter(dict[str, evaluation.BaselineResult])


async def measure(
    prepared: PreparedProblem, names: Sequence[str], progress: Progress
) -> tuple[list[evaluation.BaselineResult], dict[str, str], list[str]]:
    """The times of the named baselines, and what else is kept of the target's; why others are not timed; notes.

    Whoever calls this does not hold the lease: it is taken for what launches. Raises Refusal.
    """
    kept = prepared.device.cache / "baselines" / f"{_key(prepared)}.json"
    known = _read(kept)
    fresh: dict[str, evaluation.BaselineResult] = {}
    asked = GRAPHED in names and GRAPHED not in known
    lost = _graphs_lose(prepared, known.get(UNGRAPHED)) if asked else None
    untimed, notes = {GRAPHED: lost} if lost else {}, list[str]()
    names = [n for n in names if n not in untimed]
    if missing := [n for n in names if n not in known]:
        await compile_ahead(prepared, missing, progress)
        async with prepared.device.lease.alone(progress):
            await progress(f"timing PyTorch: {', '.join(missing)}")
            try:
                fresh, failed, said = await _measured(prepared, missing)
                if uncertain(fresh):
                    fresh = narrower(fresh, (await _measured(prepared, missing))[0])
            finally:
                for name in filter(BASELINES.get, missing):
                    prepared.end_baseline(name)
                await prepared.clear()
        doubts = uncertain(fresh)
        untimed |= failed
        notes += [*said, *doubts.values()]
        _keep(kept, {name: row for name, row in fresh.items() if name not in doubts})
    if any(n in known and n not in fresh for n in names):
        notes = ["PyTorch's times were measured earlier on this machine and kept", *notes]
    known |= fresh
    return [known[n] for n in BASELINES if n in known and n in {*names, *prepared.target.baselines}], untimed, notes


def _graphs_lose(prepared: PreparedProblem, ungraphed: evaluation.BaselineResult | None) -> str | None:
    if prepared.facts is None or ungraphed is None or not ungraphed.launches:
        return None
    launches = sum(one.launches for one in filter(None, [*ungraphed.launches, ungraphed.launches_left_out]))
    return graphs_lose(prepared.facts.work["argument_bytes"], launches, prepared.facts.peaks.copy_gbps)


def graphs_lose(argument_bytes: float, launches: int, copy_gbps: float) -> str | None:
    """Why the mode that keeps CUDA graphs cannot be faster on the device than the one that launches so often, or None:
    a graph copies the inputs into memory of its own at each replay (torch._inductor.cudagraph_trees)."""
    copied = 2 * argument_bytes / copy_gbps / 1e3
    if copied <= launches * GAP_US:
        return None
    return (
        f"is not timed, as its CUDA graph copies the inputs at every call, which takes {copied:,.0f} us and saves less"
    )


def uncertain(rows: Mapping[str, evaluation.BaselineResult]) -> dict[str, str]:
    """A sentence for each baseline whose time's interval is too wide to be relied on."""
    return {
        name: f"the time of {name} is uncertain: {row.timing.low_us:,.0f} to {row.timing.high_us:,.0f} us"
        for name, row in rows.items()
        if _width(row) > NOISY
    }


def narrower(
    one: Mapping[str, evaluation.BaselineResult], other: Mapping[str, evaluation.BaselineResult]
) -> dict[str, evaluation.BaselineResult]:
    """Of two measurements of each baseline the more certain; all together, as their speed-ups are of one sitting."""

    def widest(rows: Mapping[str, evaluation.BaselineResult]) -> float:
        return max(map(_width, rows.values()))

    return dict(one if widest(one) <= widest(other) else other)


def _width(row: evaluation.BaselineResult) -> float:
    return (row.timing.high_us - row.timing.low_us) / row.timing.median_us


def fair(rows: Sequence[evaluation.BaselineResult]) -> str:
    """The name of the fastest, which is the one to beat."""
    return min(rows, key=lambda row: row.timing.median_us).name


async def _measured(
    prepared: PreparedProblem, names: Sequence[str]
) -> tuple[dict[str, evaluation.BaselineResult], dict[str, str], list[str]]:
    """All in one sitting, or each mode by itself with eager where two of them would take gigabytes at once."""
    modes = [name for name in names if name != "eager"]
    found: dict[str, evaluation.BaselineResult] = {}
    untimed: dict[str, str] = {}
    notes: list[str] = []
    for together in [[mode] for mode in modes] if prepared.is_giant and modes else [modes]:
        rows, failed, said = await _measure(prepared, together)
        found, untimed, notes = rows | found, untimed | failed, [*notes, *said]
        await prepared.release()
    return {name: found[name] for name in BASELINES if name in found}, untimed, notes


async def _measure(
    prepared: PreparedProblem, names: Sequence[str]
) -> tuple[dict[str, evaluation.BaselineResult], dict[str, str], list[str]]:
    """Each in turns with eager, on every input shape; without a mode whose process fails on the way."""
    try:
        return await _timed(prepared, names)
    except ChildError as error:
        if prepared.loses(error):
            return await _measure(prepared, names)
        raise ours(error) from error


async def _timed(
    prepared: PreparedProblem, names: Sequence[str]
) -> tuple[dict[str, evaluation.BaselineResult], dict[str, str], list[str]]:
    wanted = ["eager", *(n for n in names if n != "eager")]
    taken, untimed = [], dict[str, str]()
    for input_set in prepared.timed:
        sides = await prepared.sides(wanted, input_set)
        untimed |= sides.untimed
        wanted = list(sides.children)
        taken.append(
            await alternate(sides.children, wanted[-1], sides.rotation, prepared.target.resolution, SAMPLING_S)
        )
    samples = combine(taken)
    rows, notes = dict[str, evaluation.BaselineResult](), list[str]()
    for name in wanted:
        compiled = BASELINES[name] is not None
        row = evaluation.BaselineResult(
            name=name,
            timing=samples.timing(name),
            speedup=samples.speedup("eager", name) if compiled else None,
            kernels=_shown(await prepared.kernels(name)) if compiled else [],
        )
        launches, why = await _launches(sides.children[name]) if compiled else ({}, "")
        rows[name] = row.model_copy(update=launches)
        notes += [f"{name}: what it launches is not timed: {why}"] if why else []
    return rows, untimed, notes


def _shown(names: list[str]) -> list[str]:
    rest = len(names) - KERNELS_SHOWN
    return names if rest <= 0 else [*names[:KERNELS_SHOWN], f"and {rest} more"]


async def _launches(child: Child) -> tuple[dict[str, object], str]:
    """Fields of a BaselineResult, or why there are none: the last that a mode is asked, so that its time is kept. An
    error of a call given up passes through."""
    try:
        return longest(await child.ask(verbs.LaunchTimes(), timeout_s=PREPARE_TIMEOUT_S)), ""
    except ChildError as fault:
        if child.abandoned:
            raise
        return {}, fault.sentence


def longest(launches: Sequence[LaunchTime], most: int = KERNELS_SHOWN) -> dict[str, object]:
    """`launches`: the `most` that take longest, in the order in which they come; `launches_left_out`: the others'
    sum."""
    rows = [
        evaluation.LaunchResult(name=one["name"][:NAME_SHOWN], us=one["us"], launches=one["launches"])
        for one in launches
    ]
    kept = sorted(range(len(rows)), key=lambda at: -rows[at].us)[:most]
    rest = [row for at, row in enumerate(rows) if at not in kept]
    others = evaluation.LaunchResult(
        name=f"{len(rest)} others", us=sum(row.us for row in rest), launches=sum(row.launches for row in rest)
    )
    return {"launches": [rows[at] for at in sorted(kept)], "launches_left_out": others if rest else None}


def _read(kept: Path) -> dict[str, evaluation.BaselineResult]:
    try:
        return Rows.validate_json(kept.read_text())
    except (OSError, ValidationError):
        return {}


def _keep(kept: Path, rows: Mapping[str, evaluation.BaselineResult]) -> None:
    """Add them to what is kept by now: others may have measured meanwhile."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    half = kept.with_suffix(f".{os.getpid()}.half")
    half.write_text(json.dumps({name: row.model_dump() for name, row in (_read(kept) | dict(rows)).items()}))
    half.replace(kept)


def _key(prepared: PreparedProblem) -> str:
    probe = prepared.device.probe
    parts = (FORMAT, prepared.problem, prepared.target.name, probe.device, str(probe.threads), version("torch"))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]
