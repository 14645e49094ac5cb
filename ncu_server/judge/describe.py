"""What `describe_problem` does: say what a problem is, what it must move and compute, and how fast PyTorch does it."""

from __future__ import annotations

import itertools
import platform
from collections.abc import Iterator, Sequence
from typing import Any

from ncu_server.errors import Code, Refusal
from ncu_server.judge import baselines, chip, graph_text, peaks
from ncu_server.judge.facts import Facts
from ncu_server.judge.input_set import InputSet
from ncu_server.judge.modes import BASELINES, notes_of
from ncu_server.judge.problem import PreparedProblem
from ncu_server.judge.problems import Workshop, problem_id
from ncu_server.judge.product_ways import compared, kind_of, limit_of, ways_of
from ncu_server.judge.roofline import moving_us
from ncu_server.judge.trusted import PREPARE_TIMEOUT_S, ours, until_kept
from ncu_server.machine.device import Device
from ncu_server.machine.lease import Progress
from ncu_server.sandbox.child import ChildError, ChildFault
from ncu_server.wire import evaluation
from ncu_server.worker import verbs
from ncu_server.worker.answers import Work


async def describe(
    workshop: Workshop, problem: str, target_name: str, names: tuple[str, ...], progress: Progress
) -> tuple[evaluation.DescribeResult, dict[str, Any] | None, dict[str, Any]]:
    """The description, the whole graph, and what calls take and give (see worker.contract).

    Raises Refusal for a problem that cannot be run.

    Where processes of ours are lost on the way, everything is set up anew and tried again.
    """
    if unknown := [b for b in names if b not in BASELINES]:
        raise Refusal(Code.BAD_ARGUMENT, f"unknown baseline {unknown[0]!r}", f"there are: {', '.join(BASELINES)}")
    device = workshop.machine.device(target_name)
    await workshop.machine.require_room()
    return await until_kept(lambda: _describe(workshop, problem, device, names, progress))


async def _describe(
    workshop: Workshop, problem: str, device: Device, names: tuple[str, ...], progress: Progress
) -> tuple[evaluation.DescribeResult, dict[str, Any] | None, dict[str, Any]]:
    await progress("preparing: inputs, expected values")
    async with workshop.problems.prepared(problem, device, progress=progress) as prepared:
        facts = prepared.facts or await _facts(prepared, progress)
        wanted = ["eager", *(n for n in names or device.target.baselines if n != "eager")]
        measured, untimed, notes = await baselines.measure(prepared, wanted, progress)
        plan = prepared.plan
    notes = [*prepared.notes, *(plan.notes if plan else []), *notes_of(untimed), *notes]
    result = _result(problem, device, facts, measured, wanted, notes)
    result = result.model_copy(update={"memory_plan": plan.name if plan else None, "untimed": untimed})
    return result, facts.graph, facts.contract


def _result(
    problem: str,
    device: Device,
    facts: Facts,
    measured: list[evaluation.BaselineResult],
    wanted: Sequence[str],
    notes: list[str],
) -> evaluation.DescribeResult:
    target, probe, work = device.target, device.probe, facts.work
    identity, there = problem_id(problem, target.name), {*wanted, *(row.name for row in measured)}
    bound = limit_of(work, facts.peaks, facts.ways)
    return evaluation.DescribeResult(
        problem_id=identity,
        target=target.name,
        device=evaluation.DeviceResult(
            target=target.name,
            name=probe.device,
            uuid=probe.uuid,
            host=platform.node(),
            arch=probe.arch,
            build_arch=target.build_arch(probe.arch) if target.build_arch else None,
            threads=probe.threads,
            copy_gbps=round(facts.peaks.copy_gbps, 2),
            peaks=facts.peaks,
            chip=facts.chip,
            features=[*facts.features, *filter(None, [probe.toolkit, facts.peaks.cache])],
            compiles_beside=device.compiles_beside,
        ),
        graph_uri=f"problem://{identity}/graph" if facts.graph else None,
        graph_error=facts.graph_error,
        contract_uri=f"problem://{identity}/contract",
        graph=graph_text.lines(facts.graph) if facts.graph else [],
        arithmetic=facts.arithmetic,
        precision=facts.precision,
        ways=facts.ways,
        operators=facts.operators[:OPERATORS_SHOWN],
        inputs=work["inputs"][:TENSORS_SHOWN],
        outputs=work["outputs"][:TENSORS_SHOWN],
        parameters=work["parameters"][:TENSORS_SHOWN],
        left_out=_left_out(work, facts.operators),
        flops=work["flops"] + facts.elementwise,
        bytes=work["read_bytes"] + work["written_bytes"],
        moving_us=moving_us(work, facts.peaks),
        limit_us=bound.us,
        limit_rate=bound.rate,
        baselines=measured,
        fair_baseline=baselines.fair(measured),
        unmeasured=[name for name in target.baselines if name not in there],
        notes=notes,
    )


TENSORS_SHOWN = 16
OPERATORS_SHOWN = 30


def _left_out(work: Work, operators: list[str]) -> dict[str, int]:
    """How many of each list do not stand in the result."""
    lists = {"inputs": work["inputs"], "outputs": work["outputs"], "parameters": work["parameters"]}
    counts = {name: len(rows) - TENSORS_SHOWN for name, rows in lists.items()}
    counts["operators"] = len(operators) - OPERATORS_SHOWN
    return {name: count for name, count in counts.items() if count > 0}


async def _facts(prepared: PreparedProblem, progress: Progress) -> Facts:
    """With the device held: the process that is asked is the one that is timed, and most of it launches."""
    async with prepared.device.lease.alone(progress):
        await progress("tracing")
        try:
            work = await prepared.work(prepared.drawn)
            graph, operators, elementwise, error = await _graph(prepared)
            contract = await prepared.contract()
            reached = await peaks.measure(prepared)
            device = await chip.measure(prepared)
            features = await prepared.eager.ask(verbs.Features(), timeout_s=PREPARE_TIMEOUT_S)
            found = await ways_of(prepared, prepared.drawn, work, reached)
        except ChildError as fault:
            raise ours(fault) from fault
    prepared.facts = Facts(
        graph,
        operators,
        elementwise,
        error,
        contract,
        work,
        reached,
        device,
        features,
        prepared.arithmetic,
        [row for one in compared(prepared, prepared.drawn) for row in _precision(one)],
        found,
    )
    return prepared.facts


def _short(value: float) -> float:
    """Six significant digits: what a client reads, not what is judged by."""
    return float(f"{value:.6g}")


def _precision(one: InputSet) -> Iterator[evaluation.PrecisionResult]:
    for name, behind in itertools.islice(zip(one.names, one.precision, strict=False), TENSORS_SHOWN):
        if behind:
            yield evaluation.PrecisionResult(
                output=name,
                inputs=kind_of(one),
                unit=_short(behind["unit"]),
                rms=_short(behind["rms"] * behind["unit"]),
                reference=_short(behind["ran"]),
                allowed=_short(behind["allowed"]),
            )


async def _graph(prepared: PreparedProblem) -> tuple[dict[str, Any] | None, list[str], float, str | None]:
    try:
        traced = await prepared.trace()
    except ChildFault as fault:
        first = fault.text.splitlines()[0] if fault.text else fault.kind
        return None, [], 0.0, f"torch.export cannot trace the module: {fault.kind}: {first}"
    return traced["graph"], traced["operators"], traced["flops"], None
