"""How exact a problem's products have to be, in words and numbers, and what each way to compute them comes to."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_agent.knowledge.situation import operators_of
from kernel_agent.run.precision import Way
from kernel_agent.run.types import Description, Problem
from kernel_agent.targets import target_of
from rag.retrieval.plan import families_of

PRODUCTS = frozenset({"gemm", "conv", "attention"})
OUTPUTS = 3
"""Outputs that are told of, each on all inputs."""

FITS = {"inside": "yes", "near": "near", "outside": "no"}
RATES = {"fp32": "float32", "tf32": "TF32", "bf16": "bf16 and fp16", "int8": "int8", "fp8": "fp8"}


BESIDE = 1.01
"""A time this little above what the bytes take is still theirs."""


def by_operations(known: Description) -> bool:
    """Whether operations make the limit, and not the bytes."""
    return bool(known.bytes_us and known.admissible_us and known.admissible_us > BESIDE * known.bytes_us)


def exact_at_no_cost(known: Description) -> Way | None:
    """The slowest of the ways that are exact enough (the last of several), where it takes no longer than the bytes."""
    inside = [(way.limit_us, way) for way in reversed(known.ways) if way.fits == "inside" and way.limit_us]
    took, slowest = max(inside, key=lambda one: one[0], default=(0.0, None))
    return slowest if known.bytes_us and took <= BESIDE * known.bytes_us else None


def has_product(problem: Problem, known: Description) -> bool:
    """Whether a problem's graph holds a matrix product or a convolution."""
    return bool(PRODUCTS & set(families_of(operators_of(problem, known))))


def units(known: Description) -> Iterator[str]:
    """A line for each output on each kind of inputs: the unit of error, the reference's error and what is allowed."""
    for row in known.precision[: 2 * OUTPUTS]:
        if not row.rms:
            yield f"{row.output} on {_inputs(row.inputs)} is zero everywhere, and has to be"
            continue
        yield (
            f"{row.output} on {_inputs(row.inputs)}: one unit is {row.unit:.2g}, {row.unit / row.rms:.2g} of its rms "
            f"{row.rms:.3g}; the reference errs {row.reference:.3g} units as it runs, {row.allowed:.4g} are allowed"
        )


def decides(known: Description) -> str:
    """The output that decides on all ways; empty where it is not the same, where there is one alone, and in runs of
    before."""
    found = {(way.output, way.inputs) for way in known.ways}
    outputs = {row.output for row in known.precision}
    return _held(*found.pop()) if len(found) == 1 and len(outputs) > 1 else ""


def _held(output: str, inputs: str) -> str:
    return f"{output} on {_inputs(inputs)}" if output else ""


def _inputs(which: str) -> str:
    return f"{which} inputs" if which in ("hard", "far") else f"inputs {which}"


def ways(known: Description) -> Iterator[str]:
    """The cells of a table: way, predicted units (with their output, where that differs), whether inside, limit, and
    the units of each output where there are several; none where the slowest way that is inside takes no longer than
    the bytes."""
    if exact_at_no_cost(known):
        return
    differ = len({(way.output, way.inputs) for way in known.ways}) > 1
    for way in known.ways:
        error, limit = _told(way.error), f"{way.limit_us:,.0f} us" if way.limit_us else "not known"
        error += f" of {held}" if differ and (held := _held(way.output, way.inputs)) else ""
        each = "".join(f" | {_told(way.errors.get(output))}" for output in outputs(known))
        yield f"{way.name} | {error} | {FITS.get(way.fits, way.fits)} | {limit}{each}"


def outputs(known: Description) -> list[str]:
    """Those whose errors are told one by one: the first of several."""
    found = list(dict.fromkeys(row.output for row in known.precision))
    return found[:OUTPUTS] if len(found) > 1 and all(way.errors for way in known.ways) else []


def _told(error: float | None) -> str:
    return "out of range" if error is None else f"{error:,.0f}" if error >= 10 else f"{error:.2g}"


def rates(known: Description) -> str:
    """The device's measured rates of products, where they are known as numbers."""
    if not target_of(known.device.target).on_gpu:
        return ""
    found = {words: known.device.peaks.get(f"{name}_tflops") for name, words in RATES.items()}
    told = [f"{rate:,.0f} {words}" for words, rate in found.items() if rate]
    return f"measured TFLOP/s of products: {', '.join(told)}" if told else ""
