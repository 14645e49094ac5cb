"""`suite`: many problems under one budget. What each of its actions does, and their table."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_agent.cli import suite_table
from kernel_agent.cli.flags import Command, Commands, Parser, add_settings, chosen_settings, keys_sentence
from kernel_agent.cli.watched import Watched, say, until_done
from kernel_agent.errors import BudgetSpent, KernelAgentError, UsageError, Waiting

if TYPE_CHECKING:
    from kernel_agent.cli.suite_screen import Display
    from kernel_agent.settings import Settings
    from kernel_agent.suite.plan import Plan
    from kernel_agent.suite.sources import Collection
    from kernel_agent.suite.store import Store


def add(command: Parser) -> None:
    """The actions and their flags."""
    actions = command.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, row in ACTIONS.items():
        action = actions.add_parser(name, help=row.help, allow_abbrev=False)
        row.add(action)
        if row.takes_settings:
            action.epilog = keys_sentence()
            add_settings(action)


def run(arguments: argparse.Namespace, watched: Watched) -> int:
    """Run an action and return its exit code."""
    return ACTIONS[arguments.action].run(arguments, watched)


def _add_run(action: Parser) -> None:
    action.usage = f"{action.prog} PATH [--level L] [--ids 1-20,40] [--minutes-per-problem M] [--minutes M] [...]"
    action.add_argument(
        "path",
        metavar="PATH",
        type=Path,
        help="a checkout of KernelBench, a folder with decks, robust-kbench's tasks or problems in files, or one file",
    )
    action.add_argument("--level", type=int, metavar="L", help="the level of a KernelBench checkout (default: all)")
    action.add_argument("--ids", metavar="IDS", help="the problems with these numbers in their names, such as 1-20,40")
    action.add_argument(
        "--run-directory",
        metavar="DIR",
        type=Path,
        help="where the suite is kept; one that is there already goes on (default: a new one in runs_dir)",
    )
    _add_limits(action)


def _add_resume(action: Parser) -> None:
    action.add_argument("directory", metavar="DIR", type=Path, help="the suite's directory")
    _add_limits(action)


def _add_limits(action: Parser) -> None:
    group = action.add_argument_group("limits")
    for what in ("minutes", "dollars", "tokens"):
        group.add_argument(
            f"--{what}-per-problem",
            dest=f"budget_{what}",
            metavar=what[0].upper(),
            help=f"most {what} that one problem may take, the same as --budget-{what}",
        )
    group.add_argument(
        "--minutes",
        type=_amount,
        metavar="M",
        help="most minutes that the suite may take, over all its sessions; the best of what is under way then is "
        "judged a last time",
    )
    group.add_argument("--dollars", type=_amount, metavar="D", help="most dollars that all model calls may cost")
    group.add_argument("--tokens", type=_count, metavar="T", help="most tokens that all model calls may take")
    group.add_argument(
        "--even",
        action=argparse.BooleanOptionalAction,
        help="with a limit in all: give each problem the same, and nobody what another leaves",
    )
    group.add_argument(
        "--problems-at-once", type=_count, metavar="N", help="problems under way at a time (default: 2 for each device)"
    )


def _amount(text: str) -> float:
    try:
        amount = float(text)
    except ValueError:
        amount = -1.0
    if not 0 < amount < float("inf"):
        raise argparse.ArgumentTypeError(f"a limit is a number above 0, not {text}")
    return amount


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"a whole number above 0 is needed, not {text}")
    return int(text)


def _run(arguments: argparse.Namespace, watched: Watched) -> int:
    from kernel_agent.settings import load_settings
    from kernel_agent.suite.plan import Plan
    from kernel_agent.suite.sources import collect

    settings = load_settings(**chosen_settings(arguments))
    _check(settings)
    found = collect(arguments.path, arguments.level, arguments.ids)
    directory = arguments.run_directory or _new_directory(settings.runs_dir, arguments.path)
    plan = _with_limits(Plan(str(arguments.path), settings.keyless()), arguments)
    with _store(directory, plan, found, arguments) as store:
        for words in (*found.notices, *(f"{id} failed: {why}" for id, why in found.faults.items())):
            print(words, flush=True)
        return _played(store, watched)


def _resume(arguments: argparse.Namespace, watched: Watched) -> int:
    from kernel_agent.suite.store import Store

    with Store.open(arguments.directory) as store:
        if store.load().verdicts:
            raise UsageError(f"{arguments.directory} has verdicts on kernels made elsewhere: `suite evaluate` goes on.")
        _go_on(store, arguments)
        return _played(store, watched)


def _check(settings: Settings) -> None:
    """Raises UsageError for a setting that holds for one run alone."""
    if settings.record is not None and settings.record.suffix:
        raise UsageError(
            f"--record of a suite is a folder, with a cassette for each problem, and {settings.record} is none."
        )


def _store(directory: Path, plan: Plan, found: Collection, arguments: argparse.Namespace) -> Store:
    """The suite in a directory, begun or gone on with. Raises UsageError where the one there has other problems."""
    from kernel_agent.errors import ProblemError
    from kernel_agent.suite.store import Store, begun
    from kernel_agent.suite.types import Outcome, State

    if not begun(directory):
        fault = ProblemError.__name__
        failed = (Outcome(id, State.FAILED, reason, fault) for id, reason in found.faults.items())
        return Store.create(directory, plan, found.problems, tuple(failed))
    store = Store.open(directory)
    there = {problem.id: problem.code for problem in store.load().problems}
    if there != {problem.id: problem.code for problem in found.problems}:
        store.close()
        raise UsageError(
            f"The suite in {directory} has other problems than {plan.source} now holds: go on with it by "
            f"`suite resume {directory}`, or take another directory."
        )
    _go_on(store, arguments)
    return store


def _go_on(store: Store, arguments: argparse.Namespace) -> None:
    """Take the settings and limits of this command line into the plan of a suite that goes on."""
    from kernel_agent.settings import load_settings, resumed_settings

    plan = store.load().plan
    given = {name: value for name, value in chosen_settings(arguments).items() if value is not None}
    settings, left = resumed_settings(load_settings(**plan.settings), given)
    _check(settings)
    if left:
        say(f"notice: of the provider before this one, {', '.join(left)} is left behind")
    if plan.settings.get("target") not in (None, settings.target):
        target = plan.settings["target"]
        raise UsageError(f"The suite in {store.directory} is for {target} and stays so: start a new one for another.")
    store.replan(_with_limits(replace(plan, settings=settings.keyless()), arguments))


def _with_limits(plan: Plan, arguments: argparse.Namespace) -> Plan:
    """The plan with the limits that the command line gives."""
    given = {name: getattr(arguments, name) for name in ("minutes", "dollars", "tokens")}
    limits = replace(plan.limits, **{name: value for name, value in given.items() if value is not None})
    even = plan.even if arguments.even is None else arguments.even
    return replace(plan, limits=limits, even=even, at_once=arguments.problems_at_once or plan.at_once)


def _new_directory(runs: Path, path: Path) -> Path:
    plain = re.sub(r"\W+", "-", path.resolve().stem).strip("-")[:80]
    stem = f"suite-{plain}-{datetime.now():%Y%m%d-%H%M%S}"
    places = (runs / (stem if number == 1 else f"{stem}-{number}") for number in range(1, 1000))
    return next(place for place in places if not place.exists())


def _played(store: Store, watched: Watched) -> int:
    """Play the suite with what shows it, and say what came of it."""
    from kernel_agent.suite.types import State, failure

    watched.suite = store.directory
    print(f"the suite is kept in {store.directory}", flush=True)
    with _display() as display:
        until_done(_play(store, display), watched)
    suite = store.load()
    outcomes = [suite.outcome(problem) for problem in suite.problems]
    states = [outcome.state for outcome in outcomes]
    print(f"{states.count(State.DONE)} of {len(states)} problems were played, {states.count(State.FAILED)} failed")
    print(f"the run of each: {store.directory / 'problems'}")
    if suite.plan.settings.get("report", True):
        _report(store.directory)
    asked = sum(one.state is State.WAITING and one.fault == Waiting.__name__ for one in outcomes)
    if waiting := states.count(State.WAITING) - asked:
        say(f"The budget is spent: {_problems(waiting)}; raise the limits and {watched.going_on()}")
        return BudgetSpent.exit_code
    if asked:
        say(f"{_problems(asked)} for replies: answer them and {watched.going_on()}")
        return Waiting.exit_code
    if fault := failure(outcomes):
        raise fault
    return 0


def _report(directory: Path) -> None:
    """Write the suite's page. That it cannot be written stops nothing."""
    from kernel_agent.page.report import REPORT
    from kernel_agent.suite.report import written

    try:
        print(f"the page: {written([directory], directory / REPORT, ended=True)}")
    except KernelAgentError as fault:
        say(f"{REPORT} is not written: {fault}")


def _problems(count: int) -> str:
    return "1 problem waits" if count == 1 else f"{count} problems wait"


async def _play(store: Store, display: Display) -> None:
    from kernel_agent.bench.pool import open_pool
    from kernel_agent.cli.report import line
    from kernel_agent.knowledge.library import open_library
    from kernel_agent.settings import load_settings
    from kernel_agent.suite.play import Play, settle

    settings = load_settings(**store.load().plan.settings)
    async with (
        open_pool(settings, store.directory, display.notice) as pool,
        open_library(settings.retrieval, display.notice) as library,
    ):
        await settle(store, pool)
        play = Play(store, pool, library, line, display.watch)
        display.show(play)
        await play.play()


@contextmanager
def _display() -> Iterator[Display]:
    from rich.console import Console

    from kernel_agent.cli.suite_screen import SuiteLines, SuiteScreen

    console = Console(highlight=False)
    if not console.is_terminal:
        yield SuiteLines(lambda text: print(text, flush=True))
        return
    with SuiteScreen(console) as screen:
        yield screen


ACTIONS: Commands = {
    "run": Command("play the problems at PATH, or go on with them", _add_run, _run, takes_settings=True),
    "resume": Command("carry on a suite that was stopped", _add_resume, _resume, takes_settings=True),
    **{name: Command(*row) for name, row in suite_table.ACTIONS.items()},
}
"""The actions, in the order of the help."""
