"""In which pass over a row each term is computed, and what is kept from one pass to the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kernel_agent.proposers.templates.program import Call, Constant, Folded, Program, Read

Keep = Literal["everything", "computed", "nothing"]


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass over a row. Numbers are ids of terms.

    `scalars` don't vary by column and are computed before it; `loop` is computed at every column, `recalled` was kept
    by an earlier pass and `kept` is for a later one; then come the folds and, in the last pass, the full outputs.
    """

    scalars: tuple[int, ...]
    loop: tuple[int, ...]
    recalled: tuple[int, ...]
    kept: tuple[int, ...]
    folds: tuple[int, ...]
    outputs: tuple[int, ...]


def passes(program: Program, keep: Keep) -> tuple[Pass, ...]:
    """The passes of a program. To keep: values read and computed, computed values only, or nothing."""
    last = max((program.phase[i] for i in program.folds), default=0)
    computed, recalls, plans = dict[int, int](), list[set[int]](), []
    for k in range(last + 1):
        folds = tuple(i for i in program.folds if program.phase[i] == k + 1)
        outputs = tuple(n for n, o in enumerate(program.outputs) if o.full) if k == last else ()
        roots = [program.terms[i].arg for i in folds] + [program.outputs[n].term for n in outputs]  # type: ignore[union-attr]
        loop, recalled = _needed(program, roots, computed, keep)
        for i in loop:
            computed.setdefault(i, k)
        recalls.append(recalled)
        plans.append((k, loop, recalled, folds, outputs))
    return tuple(
        Pass(
            scalars=_scalars(program, k),
            loop=tuple(sorted(loop)),
            recalled=tuple(sorted(recalled)),
            kept=tuple(sorted(i for i in loop if computed[i] == k and any(i in later for later in recalls[k + 1 :]))),
            folds=folds,
            outputs=outputs,
        )
        for k, loop, recalled, folds, outputs in plans
    )


def _needed(program: Program, roots: list[int], computed: dict[int, int], keep: Keep) -> tuple[set[int], set[int]]:
    """What a pass must compute at every column, and what it finds kept."""
    loop, recalled, stack = set[int](), set[int](), list(roots)
    while stack:
        i = stack.pop()
        term = program.terms[i]
        if i in loop or i in recalled or not program.by_column[i]:
            continue
        wide = program.by_row[i] or program.rows == 1
        worth = keep == "everything" or (keep == "computed" and isinstance(term, Call))
        if i in computed and wide and worth:
            recalled.add(i)
            continue
        loop.add(i)
        if isinstance(term, Call):
            stack.extend(term.args)
    return loop, recalled


def _scalars(program: Program, k: int) -> tuple[int, ...]:
    return tuple(
        i
        for i, term in enumerate(program.terms)
        if not program.by_column[i] and program.phase[i] == k and not isinstance(term, Constant | Folded)
    )


def reads(program: Program, ids: tuple[int, ...]) -> tuple[int, ...]:
    """Those of the terms that are read from memory."""
    return tuple(i for i in ids if isinstance(program.terms[i], Read))
