"""One verb: say what a problem is, what it must move and compute, and how fast PyTorch does it."""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from typing import Any

from ncu_server import schema
from ncu_server.errors import Code, Refusal
from ncu_server.lease import Report
from ncu_server.rig import Rig, problem_id
from ncu_server.session import BASELINES, PREPARE_TIMEOUT_S, Session, ours
from ncu_server.targets import Probe, Target
from ncu_server.timing import alternate
from ncu_server.zygote import Child, ChildError, ChildFault, Lost

BASELINE_FORMAT = "2"
SAMPLING_S = 3.0


async def describe(
    rig: Rig, problem: str, target_name: str, baselines: tuple[str, ...], report: Report
) -> tuple[schema.DescribeResult, dict[str, Any] | None]:
    """The description and the whole graph. Raises Refusal for a problem that cannot be run.

    Where processes of ours are lost on the way, everything is set up anew and tried once more.
    """
    if unknown := [b for b in baselines if b not in BASELINES]:
        raise Refusal(Code.BAD_ARGUMENT, f"unknown baseline {unknown[0]!r}; there are: {', '.join(BASELINES)}")
    target, probe = rig.target(target_name)
    await rig.require_room()
    try:
        return await _describe(rig, problem, target, probe, baselines, report)
    except Lost:
        return await _describe(rig, problem, target, probe, baselines, report)


async def _describe(
    rig: Rig, problem: str, target: Target, probe: Probe, baselines: tuple[str, ...], report: Report
) -> tuple[schema.DescribeResult, dict[str, Any] | None]:
    await report("preparing: inputs, expected values")
    async with rig.session(problem, target, probe) as session, rig.lease(target).alone(report):
        await report("tracing")
        try:
            work = await session.ask("work", inputs=session.drawn.inputs.spec)
            graph, operators, elementwise, error = await _graph(session)
            gbps = await session.ask("copy_rate")
        except ChildError as fault:
            raise ours(fault) from fault
        await report("timing PyTorch eager and compiled")
        measured, notes = await _baselines(rig, session, target, probe, baselines)
    identity = problem_id(problem, target.name)
    result = schema.DescribeResult(
        problem_id=identity,
        target=target.name,
        device=schema.DeviceResult(
            target=target.name, name=probe.device, arch=probe.arch, threads=probe.threads, copy_gbps=round(gbps, 2)
        ),
        graph_uri=f"problem://{identity}/graph" if graph else None,
        graph_error=error,
        operators=operators,
        inputs=work["inputs"],
        outputs=work["outputs"],
        parameters=work["parameters"][:PARAMETERS_SHOWN],
        flops=work["flops"] + elementwise,
        bytes=work["bytes"],
        limit_us=work["bytes"] / gbps / 1e3,
        baselines=measured,
        notes=[*session.notes, *notes],
    )
    return result, graph


PARAMETERS_SHOWN = 40


async def _graph(session: Session) -> tuple[dict[str, Any] | None, list[str], float, str | None]:
    try:
        traced = await session.ask("graph", inputs=session.drawn.inputs.spec)
    except ChildFault as fault:
        first = fault.text.splitlines()[0] if fault.text else fault.kind
        return None, [], 0.0, f"torch.export cannot trace the module: {fault.kind}: {first}"
    return traced["graph"], traced["operators"], traced["flops"], None


async def _baselines(
    rig: Rig, session: Session, target: Target, probe: Probe, names: tuple[str, ...]
) -> tuple[list[schema.BaselineResult], list[str]]:
    """Measured once for a problem, device and versions, then read from the cache on disk."""
    kept = rig.cache / "baselines" / f"{_key(session, probe, names)}.json"
    if kept.exists():
        stored = json.loads(kept.read_text())
        return [schema.BaselineResult.model_validate(row) for row in stored], ["baselines' times are from the cache"]
    sides, notes = await session.sides(("eager", *(n for n in names if n != "eager")))
    measured = await _measure(sides, target)
    if not notes:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps([m.model_dump() for m in measured]))
    return measured, notes


async def _measure(sides: dict[str, Child], target: Target) -> list[schema.BaselineResult]:
    last = list(sides)[-1]
    try:
        samples = await alternate(sides, last, target.tie, SAMPLING_S, PREPARE_TIMEOUT_S)
    except ChildError as error:
        raise ours(error) from error
    return [
        schema.BaselineResult(
            name=name,
            timing=samples.timing(name),
            speedup=None if name == "eager" else samples.speedup("eager", name),
        )
        for name in sides
    ]


def _key(session: Session, probe: Probe, names: tuple[str, ...]) -> str:
    parts = (
        BASELINE_FORMAT,
        session.problem,
        session.target.name,
        probe.device,
        str(probe.threads),
        version("torch"),
        *names,
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]
