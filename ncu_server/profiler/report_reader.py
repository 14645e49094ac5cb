"""The only code that opens a report: `python -m ncu_server.profiler.report_reader FILE` prints its facts as JSON.

A process of its own, since NVIDIA's reader is native code and a report may come from anywhere. The reader is the
package `ncu-report`, or the one that lies beside an Nsight Compute (`--reader FOLDER`). With `--nvdisasm PROGRAM` lines
of headers carry the line that they were inlined into.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ncu_server.compiler.sass import mnemonic_of
from ncu_server.profiler import causes, inlining

MOST_LINES, MOST_KERNELS, TEXT = 300, 200, 160
SAMPLES = "smsp__pcsamp_sample_count"
STALLED = "smsp__pcsamp_warps_issue_stalled_"
# What is summed over a line's instructions, by the name that it has in the facts.
COUNTED = {
    "samples": SAMPLES,
    "executed": "inst_executed",
    "active": "thread_inst_executed",
    "threads": "thread_inst_executed_true",
    "global_sectors": "memory_l2_theoretical_sectors_global",
    "global_ideal": "memory_l2_theoretical_sectors_global_ideal",
    "shared_wavefronts": "memory_l1_wavefronts_shared",
    "shared_ideal": "memory_l1_wavefronts_shared_ideal",
    "local_sectors": "memory_l2_theoretical_sectors_local",
}
BY_OPCODE = ("executed", "threads", "samples")
FIRST = "launch__function_pcs"
SPEEDUP_SCOPES = {1: "local", 2: "global"}


def main(arguments: list[str]) -> None:
    """Print `{"reader": .., "kernels": [..]}`, or `{"fault": ..}` where there is no reader or the file is none."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--reader")
    parser.add_argument("--nvdisasm")
    parser.add_argument("file")
    given = parser.parse_args(arguments)
    if given.reader:
        sys.path.insert(0, given.reader)
    try:
        import ncu_report
    except ImportError as missing:
        json.dump({"fault": f"no reader: {missing}"}, sys.stdout)
        return
    try:
        context = ncu_report.load_report(given.file)
    except (OSError, RuntimeError, ValueError) as fault:
        json.dump({"fault": str(fault)}, sys.stdout)
        return
    version = context.get_version() if hasattr(context, "get_version") else "unknown"
    callers = inlining.callers(Path(given.file).read_bytes(), given.nvdisasm) if given.nvdisasm else {}
    actions = (action for action, _ in zip(_actions(context), range(MOST_KERNELS), strict=False))
    kernels = [_kernel(ncu_report, action, callers) for action in actions]
    json.dump({"reader": version, "kernels": kernels}, sys.stdout, allow_nan=False)


def _actions(context: Any) -> Iterator[Any]:
    for i in range(context.num_ranges()):
        found = context.range_by_idx(i)
        for j in range(found.num_actions()):
            yield found.action_by_idx(j)


def _kernel(reader: Any, action: Any, callers: dict[str, dict[int, inlining.Place]]) -> dict[str, Any]:
    metrics, units = {}, {}
    for name in action.metric_names():
        metric = action.metric_by_name(name)
        if metric is not None and (value := _plain(metric.value())) is not None:
            metrics[name] = value
            if unit := metric.unit():
                units[name] = unit
    rows = _lines(action, callers.get(action.name(reader.IAction.NameBase_MANGLED), {}))
    return {
        "name": action.name(),
        "demangled": action.name(reader.IAction.NameBase_DEMANGLED),
        "ranges": _ranges(action),
        "metrics": metrics,
        "units": units,
        "rules": [rule for row in action.rule_results_as_dicts() if (rule := _rule(dict(row)))],
        "lines": rows[:MOST_LINES],
        "opcodes": _all(rows),
    }


def _plain(value: Any) -> float | str | None:
    """A number of finite size or a text; None for what is neither."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) else None


def _ranges(action: Any) -> list[str]:
    """The names of the NVTX ranges that were open, outermost first."""
    state = action.nvtx_state()
    if state is None:
        return []
    return [name for domain in state.domains() for name in state.domain_by_id(domain).push_pop_ranges()]


def _rule(row: dict[str, Any]) -> dict[str, Any] | None:
    message = dict(row.get("rule_message") or {})
    if not message.get("message"):
        return None
    estimate = dict(row.get("speedup_estimation") or {})
    return {
        "rule": row.get("rule_identifier"),
        "section": row.get("section_identifier"),
        "title": message.get("title") or row.get("name"),
        "text": message["message"],
        "kind": int(message.get("type", 0)),
        "speedup_pct": _plain(estimate.get("speedup")),
        "scope": SPEEDUP_SCOPES.get(int(estimate.get("type", 0))),
        "metrics": [m["name"] for m in map(dict, row.get("focus_metrics") or ())],
    }


def _lines(action: Any, callers: dict[int, inlining.Place]) -> list[dict[str, Any]]:
    """What was sampled and counted a line of source, the hottest first; a line is an instruction where there is no line
    information. `callers` are by an instruction's offset in the kernel."""
    counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
    stalls: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for name, metric in COUNTED.items():
        for address, value in _instances(action, metric):
            counts[address][name] += value
    for metric in action.metric_names():
        if metric.startswith(STALLED) and not metric.endswith("_not_issued"):
            for address, value in _instances(action, metric):
                stalls[address][metric.removeprefix(STALLED)] += value
    sources = Sources(action)
    _lay_to_causes(sources, counts, stalls)
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for address in sorted(counts):
        place, caller = sources.place(address), callers.get(address - sources.begin)
        if caller is not None and caller[0] == place[0]:  # the reader tells the outer line of what is of the same file
            place, caller = (*caller, sources.text(*caller)), None
        row = rows.get((*place, caller))
        if row is None:
            file, line, text = place
            row = {"file": file, "line": line, "text": text, "stalls": Counter(), "opcodes": {}}
            row["called_from"] = _caller(sources, caller)
            rows[(*place, caller)] = row
        for name, value in counts[address].items():
            row[name] = row.get(name, 0) + value
        row["stalls"] += stalls[address]
        if mnemonic := mnemonic_of(sources.instruction(address)):
            _count(row["opcodes"], mnemonic, [counts[address][name] for name in BY_OPCODE])
    return sorted(rows.values(), key=lambda r: (-r.get("samples", 0), -r.get("executed", 0)))


def _lay_to_causes(sources: Sources, counts: dict[int, Counter[str]], stalls: dict[int, Counter[str]]) -> None:
    """Count lost lanes and waiting at barriers where they come from."""
    code = []
    for address in (addresses := sorted(counts)):
        of = counts[address]
        active = of.pop("active", of["threads"])  # what is not recorded of a launch is not lost either
        waiting = stalls[address]["barrier"]
        code.append(causes.Executed(sources.instruction(address), of["executed"], active, of["threads"], waiting))
    found = zip(addresses, causes.lanes_lost(code), causes.barrier_waits(code), strict=True)
    for address, lost, waits in found:
        counts[address] |= Counter(lanes_lost=lost, barrier_waits=waits)


def _count(opcodes: dict[str, list[int]], mnemonic: str, more: list[int]) -> None:
    opcodes[mnemonic] = [a + b for a, b in zip(opcodes.get(mnemonic, [0] * len(more)), more, strict=True)]


def _all(rows: list[dict[str, Any]]) -> dict[str, list[int]]:
    """The opcodes of all lines together."""
    total: dict[str, list[int]] = {}
    for row in rows:
        for mnemonic, counts in row["opcodes"].items():
            _count(total, mnemonic, counts)
    return total


def _caller(sources: Sources, caller: inlining.Place | None) -> dict[str, Any] | None:
    if caller is None:
        return None
    return {"file": caller[0], "line": caller[1], "text": sources.text(*caller)}


def _instances(action: Any, name: str) -> Iterator[tuple[int, int]]:
    """Address of an instruction and what was counted there."""
    metric = action.metric_by_name(name)
    if metric is None or not metric.num_instances() or not metric.has_correlation_ids():
        return
    addresses = metric.correlation_ids()
    for i in range(metric.num_instances()):
        value = _plain(metric.value(i))
        if value and not isinstance(value, str):
            yield int(addresses.value(i)), int(value)


class Sources:
    """The code of a launch: where an instruction stands in its source, and what it says."""

    def __init__(self, action: Any) -> None:
        self.action = action
        first = action.metric_by_name(FIRST)
        self.begin = int(first.value(0)) if first is not None and first.num_instances() else 0
        self.files = {name: text.splitlines() for name, text in dict(action.source_files()).items()}

    def instruction(self, address: int) -> str:
        """The instruction in SASS, blanks made single."""
        return " ".join(self.action.sass_by_pc(address).split())

    def place(self, address: int) -> tuple[str | None, int | None, str]:
        """File, line and its text; without line information the instruction."""
        info = self.action.source_info(address)
        if info is None or not info.line():
            return None, None, self.instruction(address)[:TEXT]
        return info.file_name(), int(info.line()), self.text(info.file_name(), int(info.line()))

    def text(self, file: str, line: int) -> str:
        """What stands there; nothing where the report does not hold the file."""
        rows = self.files.get(file, [])
        return rows[line - 1].strip()[:TEXT] if 1 <= line <= len(rows) else ""


if __name__ == "__main__":
    main(sys.argv[1:])
