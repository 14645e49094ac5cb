"""`show`: the account of a run, its tree in text, what a trial changed, and all of it for scripts."""

from __future__ import annotations

import argparse
import difflib
import json
from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text
from rich.tree import Tree

from kernel_agent import text
from kernel_agent.cli.report import account, mark, short
from kernel_agent.delivery import deliver
from kernel_agent.errors import UsageError
from kernel_agent.page.rows import known
from kernel_agent.page.seen import see
from kernel_agent.run import tree
from kernel_agent.run.journal import read
from kernel_agent.run.results import results
from kernel_agent.run.tree import Run
from kernel_agent.run.types import Status, Trial

CHILDREN = 6
"""Branches of the tree in text that are shown of one trial, the fastest first."""


def show(arguments: argparse.Namespace) -> Iterator[RenderableType]:
    """What is asked for of a run, part by part. Raises UsageError for what there is not."""
    directory = arguments.directory
    if arguments.bind and not arguments.rewrite:
        raise UsageError("--bind of `show` goes with --rewrite.")
    run = read(directory)
    if arguments.rewrite:
        deliver(run, directory, arguments.bind or run.settings.bind)
    if arguments.json:
        yield Text(json.dumps(results(run, directory), indent=2), no_wrap=True)
    elif arguments.diff:
        yield from diff(run, arguments.diff)
    elif arguments.tree:
        yield branches(run)
    else:
        yield from account(run, directory, see(directory).retrieval)


def diff(run: Run, name: str) -> Iterator[Text]:
    """The lines that a trial changed in its parent, as `diff -u` writes them. Raises UsageError for an unknown name."""
    trial = named(run, name)
    if trial.parent is None:
        raise UsageError("The original has no parent to differ from.")
    parent = run.trials[trial.parent]
    before, after = (text.clean(one.source).splitlines() for one in (parent, trial))
    titles = [f"{short(one)}  {text.line(tree.title(run, one))}" for one in (parent, trial)]
    styles = {"+": "green", "-": "red", "@": "cyan"}
    for row in difflib.unified_diff(before, after, titles[0], titles[1], lineterm=""):
        yield Text(row, styles.get(row[:1], ""), no_wrap=True)


def named(run: Run, name: str) -> Trial:
    """The trial whose id begins so. Raises UsageError where none or several do."""
    found = [trial for trial in run.trials.values() if trial.id.startswith(name)]
    if name == "original":
        return run.reference
    if len(found) == 1:
        return found[0]
    some = ", ".join(trial.id for trial in (found or tree.ranking(run))[:4])
    raise UsageError(f"{len(found) or 'No'} trials of this run are named {name}: give one, such as {some}.")


def branches(run: Run) -> Tree:
    """The tree in text: of each trial those that came of it, the fastest first; the way to the best is bold."""
    children: dict[str | None, list[Trial]] = {}
    for trial in run.trials.values():
        children.setdefault(_shown_below(run, trial), []).append(trial)
    winner = tree.winner(run)
    best = {trial.id for trial in tree.lineage(run, winner if winner.idea else tree.best(run))}
    top = Tree(_leaf(run, run.reference, best), guide_style="dim")
    todo = [(run.reference, top)]
    while todo:
        trial, branch = todo.pop()
        below = sorted(children.get(trial.id, ()), key=lambda one: -(run.speedup(one) or 0.0))
        good = [one for one in below if one.id in best or one.id in children or _stands_alone(run, one)]
        shown = [one for place, one in enumerate(good) if place < CHILDREN or one.id in best]
        for one in shown:
            todo.append((one, branch.add(_leaf(run, one, best))))
        rest = _rest(run, [one for one in good if one not in shown], [one for one in below if one not in good])
        if rest:
            branch.add(Text(rest, "dim"))
    return top


def _stands_alone(run: Run, trial: Trial) -> bool:
    """Whether a trial that nothing came of is worth a line: one that passed, and is no variant of a sweep."""
    return run.speedup(trial) is not None and not trial.tuned


def _shown_below(run: Run, trial: Trial) -> str | None:
    """The nearest ancestor that passed: a draft that was repaired is only counted."""
    above = trial.parent
    while above is not None and run.speedup(run.trials[above]) is None:
        above = run.trials[above].parent
    return above


def _leaf(run: Run, trial: Trial, best: set[str]) -> Text:
    evaluation = known(run, trial)
    word = (
        mark(evaluation)
        if evaluation and trial.idea
        else Text("1.00x", "dim")
        if evaluation
        else Text("waiting", "yellow")
    )
    title = text.line(tree.title(run, trial), 90)
    return Text.assemble(word, "  ", (f"{short(trial)}  ", "dim"), (title, "bold" if trial.id in best else ""))


def _rest(run: Run, slower: Sequence[Trial], others: Sequence[Trial]) -> str:
    counts = Counter(_word(run, one) for one in others)
    parts = [f"{len(slower)} slower"] if slower else []
    return ", ".join(parts + [f"{count} {word}" for word, count in counts.most_common()])


def _word(run: Run, trial: Trial) -> str:
    evaluation = known(run, trial)
    if evaluation is None:
        return "waiting"
    return "swept" if evaluation.status is Status.PASSED else evaluation.status.replace("_", " ")
