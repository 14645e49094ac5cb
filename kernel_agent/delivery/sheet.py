"""What was verified of a delivered kernel, and what was not: the file's first lines, and a page beside it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kernel_agent import text
from kernel_agent.delivery.contract import contract_of
from kernel_agent.delivery.module import takes
from kernel_agent.run.module_checks import Delivery, ModuleCheck
from kernel_agent.run.tree import Run
from kernel_agent.run.types import Evaluation, Interval, Trial, baseline_title
from kernel_agent.targets import target_of

WIDTH = 112
BOUND_WITH = {"tvm_ffi": "torch, apache-tvm-ffi, ninja", "torch": "torch, ninja"}
"""What a file needs that is built, by what binds its kernel."""
TRIED = {
    "state_dict": "takes the original's state_dict",
    "to": "moves between devices by .to()",
    "compile": "runs under torch.compile(fullgraph=True)",
    "cuda_graph": "runs under CUDA-graph capture",
    "second_gpu": "is right on a second GPU",
}
"""What is tried of a file that works, as the sheet says it; see the server's verify_module."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """What is known of a delivered kernel: its second judgement, and what was tried of the file by itself."""

    run: Run
    trial: Trial
    bind: str
    version: str

    @property
    def evaluation(self) -> Evaluation:
        """The second judgement. Raises KeyError where there is none."""
        return self.run.confirmations[self.trial.source_id]

    @property
    def delivery(self) -> Delivery | None:
        """What was tried of the file that is delivered; None where it was not tried, or bound otherwise."""
        found = self.run.deliveries.get(self.trial.source_id)
        return found if found and found.bind == self.bind else None


@dataclass(frozen=True, slots=True)
class Remark:
    """A sentence of a sheet; `holds` is True of what was verified, False of what cannot be or was not, else None."""

    holds: bool | None
    text: str


def headed(source: str, sheet: Sheet) -> str:
    """The delivered file under its sheet; imports from `__future__` may stand below comments."""
    by = " ".join(filter(None, ["KernelAgent", sheet.version]))
    rows = [f"A kernel for {sheet.run.problem.name}, found by {by}.", *(one.text for one in remarks(sheet))]
    wrapped = [line for row in rows for line in textwrap.wrap(text.line(row, 2000), WIDTH, subsequent_indent="    ")]
    return "".join(f"# {line}\n" for line in wrapped) + "\n" + source


def page(sheet: Sheet) -> str:
    """VERIFICATION.md: the same with the judge's facts and the commands that repeat it."""
    rows = [f"# {sheet.run.problem.name}: what was verified", ""]
    rows += [f"- {one.text}" for one in remarks(sheet)]
    facts = sheet.evaluation.provenance
    rows += ["", "## The second judgement", "", "| what | value |", "|---|---|"]
    rows += [f"| {_cell(name)} | {_cell(value)} |" for name, value in facts.items()]
    if said := sheet.evaluation.log.strip():
        rows += ["", "What the judge remarked:", "", *(f"    {row}" for row in text.clean(said).splitlines())]
    rows += ["", "## The file by itself", "", *_tried_rows(sheet.delivery), "", "## To repeat it", ""]
    rows += [
        f"    python -m kernel_agent evaluate best_kernel.py --problem PROBLEM.py --target {sheet.run.problem.target}"
    ]
    return "\n".join(rows) + "\n"


def remarks(sheet: Sheet) -> Iterator[Remark]:
    """What was verified of the kernel, what was not, and how it is used."""
    contract = contract_of(sheet.run.description)
    yield from (Remark(False, row) for row in _cannot(sheet.delivery, contract.why_not_compiled))
    yield from (Remark(True, row) for row in _verified(sheet))
    yield Remark(sheet.delivery is not None, _works(sheet))
    refused = "refused, or copied into the verified layout" if contract.calls else "not checked: the run recorded none"
    yield Remark(
        False,
        f"NOT verified: other shapes, dtypes and strides ({refused}), other arguments of the constructor, gradients "
        "(inputs that need them are refused, parameters get none), other GPUs and versions, values beyond those that "
        "`get_inputs` draws.",
    )
    builder = target_of(sheet.run.problem.target).builder
    needs = f"{BOUND_WITH[sheet.bind]} and {builder}" if builder else "torch with its Triton"
    use = "Use: from best_kernel import ModelNew; model = ModelNew(...), as the original."
    yield Remark(None, f"{use} It needs {needs}.")


def _verified(sheet: Sheet) -> Iterator[str]:
    device, evaluation = sheet.run.description.device, sheet.evaluation
    facts = evaluation.provenance
    allowed = f"{evaluation.allowed:.4g} allowed rounding units"
    error = "" if evaluation.error is None else f"error {evaluation.error:.3g} of {allowed}; "
    yield f"Checked: against float64 on secret inputs, drawn anew in fresh processes; {error}{_who(evaluation)}."
    against = [f"{_times(v.speedup)} against {baseline_title(v.baseline)}" for v in evaluation.versus]
    yield f"Measured: {', '.join(against)} on {device.name} ({device.arch}); intervals are 95 %."
    versions = [f"{name} {facts[name]}" for name in ("torch", "python") if name in facts]
    yield f"With: {', '.join([*versions, *([str(facts['toolkit'])] if 'toolkit' in facts else [])])}."
    contract = contract_of(sheet.run.description)
    if words := takes(contract):
        yield f"Takes: {words}.{_mode(contract.mode)}"


def _mode(mode: bool | None) -> str:
    return "" if mode is None else f" It was verified as after .{'train' if mode else 'eval'}()."


def _who(evaluation: Evaluation) -> str:
    facts = evaluation.provenance
    share = facts.get("own_share")
    own = f", {share:.0%} of the computing in kernels of its own" if isinstance(share, float) else ""
    return f"authorship {facts.get('label', 'not told')}{own}"


def _works(sheet: Sheet) -> str:
    if sheet.delivery is None:
        return "This file was not tried by itself: what was judged is its kernel, as the run built it."
    good = [TRIED[c.name] for c in sheet.delivery.checks if c.ok and c.name in TRIED]
    return f"By itself, in an empty folder and a fresh process: it builds, agrees with the original{_and(good)}."


def _cannot(delivery: Delivery | None, why: str | None) -> Iterator[str]:
    if why:
        yield f"CANNOT: torch.compile(fullgraph=True) cannot take it: {why}."
    for check in delivery.checks if delivery else ():
        if check.ok is False and not (check.name == "compile" and why):
            yield f"CANNOT: it fails in what was tried as `{check.name}`: {check.why}"


def _and(parts: Sequence[str]) -> str:
    return "".join(f", {part}" for part in parts)


def _tried_rows(delivery: Delivery | None) -> Iterator[str]:
    if delivery is None:
        yield "It was not tried by itself."
        return
    yield from ("| tried | result | why |", "|---|---|---|")
    for check in delivery.checks:
        yield f"| {check.name} | {_result(check)} | {_cell(check.why)} |"


def _result(check: ModuleCheck) -> str:
    return {True: "yes", False: "no", None: "not tried"}[check.ok]


def _times(interval: Interval) -> str:
    return f"{interval.median:.2f}x [{interval.low:.2f}, {interval.high:.2f}]"


def _cell(value: Any) -> str:
    return text.line(str(value), 300).replace("|", "\\|")
