"""What a prompt says of a brief, in words and numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from difflib import unified_diff
from math import prod
from statistics import median
from typing import Any

from kernel_agent.knowledge.render import experience_text
from kernel_agent.prompts import line
from kernel_agent.prompts.chip import chip_facts
from kernel_agent.prompts.precision import (
    by_operations,
    decides,
    exact_at_no_cost,
    has_product,
    outputs,
    rates,
    units,
    ways,
)
from kernel_agent.run.brief import Brief, Outcome
from kernel_agent.run.types import JSON, Description, Evaluation, Idea, Profile, Timing, baseline_title, baseline_titles
from kernel_agent.targets import target_of

HOT_LINES, RULES, LAUNCHES = 6, 3, 8
GIST = 240
"""Characters of how an earlier idea was to be carried out."""

TRIED, TITLES = 26_000, 9_000
"""Characters of all that was tried, and of these kept for what is told by its title alone."""

SHORTER = 0.6
"""Share of a source up to which its difference from another stands for it."""

FASTEST = 8
"""Earlier ideas that are told whole because nothing was faster."""

NEAR = 0.3
"""Share of a time left to the limit below which a profiler's rules promise more than there is."""

LITTLE = 0.9
"""Share of the limit from which on no idea at all may be the right answer."""

KERNELS = 60
"""Kernels of torch.compile, and rows of a graph, that are named."""

STREAMING = "streaming kernels reach 85 to 95 %"
SPLIT = "float32 of split operands takes longer"
RATE = f"of the operations at TF32's rate (bfloat16's for narrow inputs); {SPLIT}"
"""What a limit by operations counts on a GPU, in runs of before."""
NARROW = ("tf32", "fp16", "bf16")
"""Arithmetic of a reference that is answered at the rate that a limit names, without a split."""

KERNEL_NAME = 120
"""Characters of a launch's name: those of templates of C++ go on for many."""

PICKS = "_operator.getitem"
"""Picks one of several outputs, and moves nothing."""

SIZES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2}


def facts(brief: Brief) -> dict[str, object]:
    """The values that the templates of prompts/ use."""
    known, device = brief.description, brief.description.device
    evaluation, idea = brief.parent_evaluation, brief.parent_idea
    return {
        "target": brief.problem.target,
        "arch": device.arch,
        "threads": device.threads,
        "arithmetic": known.arithmetic or "float32",
        "device": line(_device(known), 800),
        "problem": brief.problem.source,
        "operators": operators(known.graph) if known.graph else "",
        "has_product": has_product(brief.problem, known),
        "units": list(units(known)) if has_product(brief.problem, known) else [],
        "ways": list(ways(known)),
        "way_outputs": outputs(known),
        "decides": decides(known),
        "repairs": brief.repairs,
        "sweeps": brief.sweeps,
        "limit_s": f"{brief.limit_s:g}",
        "with_example": brief.parent_idea is None,
        "graph_error": known.graph_error,
        "facts": [*_work(known), *chip_facts(brief.problem, known)],
        "compiled": "\n".join(_first([line(row) for row in _compiled(known)])),
        "profiled_mode": baseline_title(mode) if (mode := _launched(known)) else "",
        "notes": "\n".join(line(note) for note in known.notes),
        "parent_title": idea and idea.title + _written(brief, idea),
        "parent_source": brief.parent.source,
        "scale": _scale(known),
        "parent_factor": _parent_factor(brief),
        "near": _near(brief),
        "parent_measured": _measured(evaluation, known) if evaluation else "nothing yet",
        "parent_profile": "\n".join(_profile(brief.parent_profile, _left(brief))) if brief.parent_profile else "",
        "second_parent": brief.second_parent
        and {
            "title": brief.second_parent.idea.title,
            **_beside(brief.second_parent.trial.source, brief.parent.source),
            "measured": _measured(brief.second_parent.evaluation, known),
        },
        "outcomes": _outcomes(brief),
        "promises": _promises(brief),
        "advice": brief.advice,
        "passages": [
            {"label": f"{p.slot}: {': '.join(filter(None, (p.title, p.heading)))} ({p.source})", "text": p.text}
            for p in brief.passages
        ],
        "has_marks": any("//@" in p.text for p in brief.passages),
        "retrieval_mode": brief.retrieval_mode,
        "experience": experience_text(brief.experiences),
    }


def _device(known: Description) -> str:
    device = known.device
    copy = f", {device.copy_gbps:,.0f} GB/s measured for a copy (read + write)" if device.copy_gbps else ""
    copy += f", {read:,.0f} GB/s for reading alone" if copy and (read := device.peaks.get("read_gbps")) else ""
    threads = (
        f", {device.threads} thread{'s' if device.threads != 1 else ''}" if not target_of(device.target).on_gpu else ""
    )
    facts = [*device.features, *([rates(known)] if known.ways and not exact_at_no_cost(known) else [])]
    return f"{device.name}, {device.arch}{threads}{copy}{''.join(f'; {fact}' for fact in facts if fact)}"


def _written(brief: Brief, idea: Idea) -> str:
    by = ", as a template writes it" if idea.change is not None else ""
    swept = ", ".join(f"{name}={value}" for name, value in brief.parent.tuned)
    return by + (f", now with {swept}" if swept else "")


def _scale(known: Description) -> str:
    """What gains are counted over: the time to beat, which is eager PyTorch's until others are known."""
    return f"{baseline_title(known.to_beat)}, {known.baselines[known.to_beat].median_us:,.1f} us"


def _over_beat(known: Description) -> float:
    """What turns a speed-up over eager PyTorch into one over the time to beat."""
    return known.baselines[known.to_beat].median_us / known.baselines["eager"].median_us


def _parent_factor(brief: Brief) -> str:
    known, judged = brief.description, brief.parent_evaluation
    timing = judged.timing if judged and judged.timing else known.baselines["eager"]
    return _factor(known.baselines[known.to_beat].median_us / timing.median_us)


def _near(brief: Brief) -> str:
    """What is so near to the limit that little can be gained, and how near; empty where nothing is."""
    known, judged = brief.description, brief.parent_evaluation
    times = {baseline_title(known.to_beat): known.baselines[known.to_beat].median_us}
    if brief.parent_idea and judged and judged.timing:
        times["the parent"] = judged.timing.median_us
    best = min(times, key=times.__getitem__)
    reached = known.reached(times[best])
    return f"{best} reaches {100 * reached:.0f} % of the limit" if reached and reached >= LITTLE else ""


def _beside(source: str, parent: str) -> dict[str, str]:
    """The other parent's source, or what of it is not the first parent's where that says it in far fewer words."""
    rows = unified_diff(parent.splitlines(), source.splitlines(), "the parent", "the other parent", n=2, lineterm="")
    if len(change := "\n".join(rows)) > SHORTER * len(source):
        return {"label": "the other parent's source, a complete candidate", "source": source}
    return {"label": "the other parent's source, as a unified diff from the parent's above", "source": change}


def _launched(known: Description) -> str:
    """The fastest mode of torch.compile of which it is known how long what it launches takes."""
    timed = [name for name in known.baselines if known.launches.get(name)]
    return min(timed, key=lambda name: known.baselines[name].median_us, default="")


def _compiled(known: Description) -> Iterator[str]:
    """What torch.compile launches, with microseconds and shares of their sum where they are known."""
    launches = known.launches.get(_launched(known), ())
    whole = sum(one.us for one in launches)
    yield from () if launches else known.compiled
    for one in launches:
        often = f" in {one.launches} launches" if one.launches > 1 else ""
        share = f", {100 * one.us / whole:.0f} %" if whole else ""
        yield f"{line(one.name, KERNEL_NAME)}: {one.us:,.1f} us{often}{share}"


def _work(known: Description) -> Iterator[str]:
    yield f"counted work: {_amount(known.flops)}FLOP; inputs, parameters and outputs once: {_amount(known.bytes)}B"
    if known.admissible_us:
        yield f"limit: {known.admissible_us:,.1f} us, {_of(known)}"
    if by_operations(known):
        yield f"the bytes alone would take {known.bytes_us:,.1f} us"
    for name, timing in known.baselines.items():
        yield f"{baseline_title(name)}: {_time(timing, known)}"
    if known.unmeasured:
        yield f"not timed yet: {baseline_titles(known.unmeasured)}; until then gains count against eager PyTorch"
    yield f"to beat{' so far' if known.unmeasured else ''}: {_scale(known)}"


def _of(known: Description) -> str:
    """What the limit counts, and what is within reach."""
    if not by_operations(known):
        best = next((way.name for way in (exact_at_no_cost(known), known.admissible) if way), None)
        products = f"; the products take no longer by {best}" if best else ""
        passed = known.bytes_us and known.baselines[known.to_beat].median_us < known.bytes_us
        reach = f"no bound here: {baseline_title(known.to_beat)} passes it" if passed else STREAMING
        return f"the bytes at the measured rates{products}; {reach}"
    if known.admissible:
        return f"by {known.admissible.name}, the fastest way that is inside"
    if not target_of(known.device.target).on_gpu:
        return "of the operations"
    if not known.limit_rate:
        return RATE
    words = f"of the operations at {known.limit_rate}"
    return words if known.arithmetic in NARROW else f"{words}; {SPLIT}"


def _time(timing: Timing, known: Description) -> str:
    return f"{timing.median_us:,.1f} us [{timing.low_us:,.1f}, {timing.high_us:,.1f}]{_share(timing.median_us, known)}"


def _share(time_us: float, known: Description) -> str:
    """How far a time is from the limit, which exact algebra can pass where operations make it."""
    if known.bytes_us and time_us < known.bytes_us:
        return ", faster than the bytes at the measured rates"
    if by_operations(known) and known.admissible_us and time_us < known.admissible_us:
        return f", less than the operations as counted allow; the bytes alone would take {known.bytes_us:,.1f} us"
    reached = known.reached(time_us)
    return f", {100 * reached:.0f} % of the limit reached" if reached else ""


def _measured(evaluation: Evaluation, known: Description) -> str:
    if evaluation.timing is None:
        return evaluation.status.replace("_", " ")
    parts = [_time(evaluation.timing, known)]
    for versus in evaluation.versus:
        speedup = versus.speedup
        parts.append(f"{speedup.median:.2f}x {versus.baseline} [{speedup.low:.2f}, {speedup.high:.2f}]")
    if evaluation.error is not None:
        of = f" ({evaluation.held})" if evaluation.held else ""
        parts.append(f"error {evaluation.error:.3g} of the {evaluation.allowed:.4g} allowed{of}")
    return ", ".join(parts)


def _left(brief: Brief) -> float | None:
    """The share of the parent's time that a kernel at the limit would not take."""
    timing = brief.parent_evaluation and brief.parent_evaluation.timing
    reached = brief.description.reached(timing.median_us) if timing else None
    return 1 - reached if reached and reached < 1 else None


def _profile(seen: Profile, left: float | None) -> Iterator[str]:
    """What limits the parent, as far as the profiler could tell."""
    yield f"bound: {line(seen.bound)}, {line(seen.why)} (from {seen.rung})"
    groups = (("wrong", seen.findings), ("warps wait", seen.stalls), ("hot", seen.hot_lines[:HOT_LINES]))
    for name, rows in (*groups, ("rule", seen.rules[:RULES]), ("launch", seen.launches[:LAUNCHES])):
        for row in rows:
            yield f"{name}: {line(row, 400)}"
    if seen.rules and left is not None and left < NEAR:
        yield f"whatever the rules estimate, {100 * left:.0f} % of the time is all that lies between this and the limit"
    if seen.metrics:
        yield f"numbers: {line('; '.join(seen.metrics), 900)}"


def _outcomes(brief: Brief) -> str:
    """What was tried, a line each, in at most TRIED characters: what does not fit is told by its title, then counted.

    This round's own ideas come first, as none may repeat them, then what led to the parent and what was fastest, then
    the latest; it is told in the order in which it was tried.
    """
    tried = [(one, "led to the parent") for one in brief.ancestors]
    tried += [(one, "tried beside it") for one in brief.siblings]
    over = _over_beat(brief.description)
    fastest = sorted(range(len(tried)), key=lambda at: -(tried[at][0].speedup or 0.0))[:FASTEST]
    telling = {*range(len(brief.ancestors)), *fastest}
    told: dict[int, str] = {}
    left = TRIED
    for at in sorted(range(len(tried)), key=lambda at: (tried[at][0].ended, at not in telling, -at)):
        one, where = tried[at]
        row = f"{_outcome(one, over)} ({where})"
        if len(row) >= left - TITLES:
            row = f"{_outcome(replace(one, gist='', remark='') if one.ended else one, over)} ({where})"
        if len(row) < left:
            told[at] = row
            left -= len(row) + 1
    missing = len(tried) - len(told)
    return "\n".join([*(told[at] for at in sorted(told)), *([f"... and {missing} more"] if missing else [])])


def outcomes(found: Iterable[Outcome]) -> str:
    """One line each: what was found, then what was tried."""
    return "\n".join(map(_outcome, found))


def _outcome(one: Outcome, over: float = 1.0) -> str:
    """What was found, then what was tried. Factors are speed-ups over eager PyTorch times `over`; so is what was
    promised, over whatever kernel."""
    status = one.status.replace("_", " ")
    found = status if one.speedup is None else _factor(one.speedup * over)
    if one.speedup is not None and one.predicted:
        parent = one.speedup / one.gain if one.gain else 1.0
        found += f", promised {_factor(one.predicted * parent * over)}"
    remark = f"; {line(one.remark)}" if one.remark else ""
    gist = f"; it was: {line(one.gist, GIST)}" if one.gist else ""
    return f"{found}: {line(one.title)}{remark}{gist}"


def _promises(brief: Brief) -> str:
    """How the gains over a kernel that were predicted in this run compare with those that were measured."""
    told = ((one.predicted, one.gain) for one in (*brief.ancestors, *brief.siblings))
    checked = [(promise, gain) for promise, gain in told if promise and gain]
    if not checked:
        return ""
    kept = sum(gain >= promise for promise, gain in checked)
    promised, measured = (median(one) for one in zip(*checked, strict=True))
    return (
        f"of {len(checked)} predictions that were put to the test {kept} came true; "
        f"the median promised {_factor(promised)} and {_factor(measured)} was measured"
    )


def _factor(value: float) -> str:
    return f"{value:.2f}x" if 0.1 <= value < 1e6 else f"{value:.2g}x"


def _amount(value: float) -> str:
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} "


def _first(rows: Sequence[str], limit: int = KERNELS) -> Sequence[str]:
    return rows if len(rows) <= limit else (*rows[:limit], f"... and {len(rows) - limit} more")


def operators(graph: JSON, limit: int = KERNELS) -> str:
    """One line an operator: name, operator, arguments, result, and the bytes it reads and writes run alone."""
    specs: dict[str, Sequence[JSON]] = {}
    given = []
    for row in (*graph["inputs"], *graph["parameters"]):
        if "shape" in row:
            specs[row.get("node", row["name"])] = (row,)
            given.append(f"{row.get('node', row['name'])}: {row.get('kind', 'input')} {_spec(row)}")
    rows, unread = [*_first(given, limit)], _unread(graph)
    for node in graph["nodes"][:limit]:
        specs[node["name"]] = [spec for at, spec in enumerate(node["outputs"]) if (node["name"], at) not in unread]
        read = {name for arg in (*node["args"], *node["kwargs"].values()) for name in _names(arg)}
        around = () if node["op"] == PICKS else (*read, node["name"])
        moved = sum(_bytes(spec) for name in around for spec in specs.get(name, ()))
        arguments = [_argument(arg) for arg in node["args"]]
        arguments += [f"{key}={_argument(arg)}" for key, arg in node["kwargs"].items()]
        made = ", ".join(_spec(spec) for spec in node["outputs"])
        rows.append(line(f"{node['name']} = {node['op']}({', '.join(arguments)}) -> {made}; {_amount(moved)}B", 1000))
    if len(graph["nodes"]) > limit:
        rows.append(f"... and {len(graph['nodes']) - limit} more")
    return "\n".join([*rows, f"returns {', '.join(_first([*map(str, graph['outputs'])], limit))}"])


def _unread(graph: JSON) -> set[tuple[str, int]]:
    """Of nodes with several outputs, those that nothing picks, or whose pick nobody reads: node and place."""
    read = {
        name for node in graph["nodes"] for arg in (*node["args"], *node["kwargs"].values()) for name in _names(arg)
    }
    read |= set(map(str, graph["outputs"]))
    picks = {(node["args"][0]["node"], node["args"][1]): node["name"] for node in graph["nodes"] if node["op"] == PICKS}
    return {
        (node["name"], at)
        for node in graph["nodes"]
        for at in range(len(node["outputs"]))
        if len(node["outputs"]) > 1 and picks.get((node["name"], at)) not in read
    }


def _spec(spec: JSON) -> str:
    return f"{spec['dtype']}{spec['shape']}"


def _bytes(spec: JSON) -> int:
    return prod(spec["shape"]) * SIZES.get(spec["dtype"], 1)


def _names(arg: Any) -> Iterator[str]:
    if isinstance(arg, dict) and "node" in arg:
        yield arg["node"]
    elif isinstance(arg, list):
        for inner in arg:
            yield from _names(inner)


def _argument(arg: Any) -> str:
    if isinstance(arg, dict):
        return str(next(iter(arg.values()), ""))
    if isinstance(arg, list):
        return f"[{', '.join(map(_argument, arg))}]"
    return str(arg)
