"""What a suite came to: its table, two side by side, its kernels judged again, and kernels made elsewhere."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_agent.cli.flags import Command, Commands, Parser, add_settings, chosen_settings
from kernel_agent.cli.watched import Watched, say, until_done
from kernel_agent.errors import Unavailable, UsageError

if TYPE_CHECKING:
    from kernel_agent.settings import Settings
    from kernel_agent.suite.judging import Judging
    from kernel_agent.suite.sources import Collection
    from kernel_agent.suite.store import Store
    from kernel_agent.suite.table import Grid, Table
    from kernel_agent.suite.types import Row

MEASURING = ("target", "mcp_server_path", "evaluation_timeout_s", "pool", "gpus")
"""Settings of whoever judges without a search."""

NOT_HELD = 6
NAMED = 5
"""Problems that a notice names."""


def _add_table(action: Parser) -> None:
    _add_suite(action)
    form = action.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="rows and sums as JSON, which `suite compare` reads too")
    form.add_argument("--csv", action="store_true", help="a line for each problem, with every field")
    form.add_argument("--markdown", action="store_true", help="a page (the default where stdout is no terminal)")


def _add_compare(action: Parser) -> None:
    for name in ("a", "b"):
        what = "a suite's directory, or what `suite table --json` has written"
        action.add_argument(name, metavar=name.upper(), type=Path, help=what)
    action.add_argument("--json", action="store_true", help="print it as JSON, nothing else")


def _add_evaluate(action: Parser) -> None:
    action.usage = f"{action.prog} DIR --problems PATH [--level L] [--ids 1-20,40] [--run-directory OUT] [...]"
    what = "kernels: <id>.py or <number>_<name>.py for a problem, or a run of KernelBench's scripts"
    action.add_argument("kernels", metavar="DIR", type=Path, help=what)
    action.add_argument(
        "--problems", metavar="PATH", type=Path, required=True, help="what they stand in for, as `suite run` takes it"
    )
    action.add_argument("--level", type=int, metavar="L", help="the level of a KernelBench checkout (default: all)")
    action.add_argument("--ids", metavar="IDS", help="the problems with these numbers in their names, such as 1-20,40")
    action.add_argument(
        "--sample", type=int, default=0, metavar="S", help="which sample of a KernelBench run (default: 0)"
    )
    action.add_argument(
        "--run-directory",
        metavar="OUT",
        type=Path,
        help="where the verdicts are kept; one that is there already goes on (default: a new one in runs_dir)",
    )
    _add_anew(action)
    add_settings(action, only=MEASURING)


def _add_confirm(action: Parser) -> None:
    _add_suite(action)
    _add_anew(action)
    add_settings(action, only=[name for name in MEASURING if name != "target"])


def _add_export(action: Parser) -> None:
    _add_suite(action)
    action.add_argument("folder", metavar="DIR", type=Path, help="where the kernels are written, a folder for a level")
    action.add_argument(
        "--bind",
        choices=("torch", "tvm_ffi"),
        default="torch",
        help="what binds the kernels: torch needs nothing that KernelBench does not have (default: torch)",
    )
    action.add_argument("--level", type=int, metavar="L", help="the level of problems whose ids do not say it")
    action.add_argument("--json", action="store_true", help="print what was written as JSON, nothing else")


def _add_suite(action: Parser) -> None:
    action.add_argument("directory", metavar="SUITE", type=Path, help="the suite's directory")


def _add_anew(action: Parser) -> None:
    action.add_argument("--anew", action="store_true", help="judge again what has been judged already")
    action.add_argument("--json", action="store_true", help="print the table as JSON at the end, all else on stderr")


def _table(arguments: argparse.Namespace, watched: Watched) -> int:
    from kernel_agent.suite.table import as_json, comma_separated, markdown, table

    console = _console()
    found = table(str(arguments.directory), _rows(arguments.directory))
    if arguments.json or arguments.csv or arguments.markdown or not console.is_terminal:
        written = as_json if arguments.json else comma_separated if arguments.csv else markdown
        print(written(found), end="")
        return 0
    _show(console, found)
    return 0


def _show(console: Any, found: Table) -> None:
    from rich.text import Text

    from kernel_agent.suite.table import counts, problems, remarks, speeds

    for grid in (problems(found), counts(found), speeds(found)):
        console.print(_drawn(grid))
        console.print()
    for remark in remarks(found):
        console.print(Text(remark, "dim"))


def _compare(arguments: argparse.Namespace, watched: Watched) -> int:
    from rich.text import Text

    from kernel_agent.suite.compare import account, changes, compare

    found = compare(_rows(arguments.a), _rows(arguments.b))
    if not found.pairs:
        raise UsageError(f"{arguments.a} and {arguments.b} have no problem in common.")
    if arguments.json:
        noise = {"is_noise": found.is_noise}
        print(json.dumps(asdict(found) | noise, indent=2))
        return 0
    console = _console()
    grid = changes(found)
    if grid.lines:
        console.print(_drawn(grid))
        console.print()
    for line in account(found):
        console.print(Text(line))
    return 0


def _evaluate(arguments: argparse.Namespace, watched: Watched) -> int:
    from kernel_agent.settings import load_settings
    from kernel_agent.suite.kernels import found_kernels
    from kernel_agent.suite.sources import collect
    from kernel_agent.suite.types import failure

    settings = load_settings(**chosen_settings(arguments))
    found = collect(arguments.problems, arguments.level, arguments.ids)
    kernels = found_kernels(arguments.kernels, found.problems, arguments.sample)
    directory = arguments.run_directory or new_directory(settings.runs_dir, "evaluated", arguments.kernels)
    with _evaluated(directory, arguments.problems, found, settings) as store:
        tell = _teller(arguments)
        tell(f"the verdicts are kept in {directory}; the same command with --run-directory {directory} goes on")
        for notice in [*found.notices, *([f"for no problem: {_named(kernels.unused)}"] if kernels.unused else [])]:
            tell(notice)
        settings = load_settings(**{**store.load().plan.settings, **_given(arguments)})
        judging = _judging(store, settings, arguments.anew, tell, lambda judging: judging.evaluate(kernels))
        until_done(judging, watched)
        suite = store.load()
    rows = _told(arguments, directory)
    tell(f"{sum(row.correct for row in rows)} of {len(rows)} problems have a kernel that passed")
    tell(f"the table: python -m kernel_agent suite table {directory}")
    if fault := failure([suite.outcome(problem) for problem in suite.problems]):
        raise fault
    return 0


def _evaluated(directory: Path, problems: Path, found: Collection, settings: Settings) -> Store:
    """The directory of an evaluation, new or gone on with. Raises UsageError where it is of something else."""
    from kernel_agent.suite.plan import Plan
    from kernel_agent.suite.store import Store, begun

    if not begun(directory):
        return Store.create(directory, Plan(str(problems), settings.keyless()), found.problems)
    store = Store.open(directory)
    suite = store.load()
    given, target = {problem.id: problem.code for problem in found.problems}, suite.plan.settings.get("target")
    why = None
    if suite.grants:
        why = "holds a suite of runs, whose kernels `suite confirm` judges again"
    elif {problem.id: problem.code for problem in suite.problems} != given:
        why = f"has verdicts on other problems than {problems} now holds"
    elif settings.target and target and settings.target != target:
        why = f"has verdicts for {target}"
    if why:
        store.close()
        raise UsageError(f"{directory} {why}: take another directory.")
    return store


def _confirm(arguments: argparse.Namespace, watched: Watched) -> int:
    from kernel_agent.settings import load_settings
    from kernel_agent.suite.store import Store

    faults: list[str] = []
    tell = _teller(arguments)

    async def confirm(judging: Judging) -> None:
        faults.extend(await judging.confirm())

    with Store.open(arguments.directory) as store:
        settings = load_settings(**{**store.load().plan.settings, **_given(arguments)})
        until_done(_judging(store, settings, arguments.anew, tell, confirm), watched)
    held = [row.held for row in _told(arguments, arguments.directory) if row.held is not None]
    tell(f"{sum(held)} of {len(held)} kernels that were judged again held")
    if faults:
        raise Unavailable(f"{len(faults)} kernels could not be judged again; the first is {faults[0]}")
    return 0 if all(held) else NOT_HELD


Tell = Callable[[str], None]


async def _judging(
    store: Store, settings: Settings, anew: bool, tell: Tell, work: Callable[[Judging], Awaitable[None]]
) -> None:
    from kernel_agent.bench.pool import open_pool
    from kernel_agent.suite.judging import Judging

    async with open_pool(settings, store.directory, tell) as pool:
        await work(Judging(store, pool, tell, anew))


def _teller(arguments: argparse.Namespace) -> Tell:
    """Where lines for people go: stdout is for JSON alone where that is asked for."""
    return say if arguments.json else _line


def _line(text: str) -> None:
    print(text, flush=True)


def _told(arguments: argparse.Namespace, directory: Path) -> tuple[Row, ...]:
    """The rows that came of it; as JSON on stdout too where that is asked for."""
    from kernel_agent.suite.table import as_json, table

    rows = _rows(directory)
    if arguments.json:
        print(as_json(table(str(directory), rows)), end="")
    return rows


def _export(arguments: argparse.Namespace, watched: Watched) -> int:
    from kernel_agent.suite.export import export
    from kernel_agent.suite.store import read

    found = export(read(arguments.directory), arguments.folder, arguments.bind, arguments.level)
    if arguments.json:
        commands = {"commands": [level.command for level in found.levels]}
        print(json.dumps(asdict(found) | commands, indent=2, default=str))
        return 0
    for level in found.levels:
        print(f"{level.folder}: kernels of level {level.level} for {level.target}, {len(level.numbers)} of them")
        print(f"    {level.command or 'KernelBench scores kernels on a GPU alone'}")
    if found.left_out:
        print(f"left out, {len(found.left_out)} of them: {_named(found.left_out.values(), '; ')}")
    if found.as_it_lay:
        print(f"bound by tvm_ffi, which KernelBench then needs (apache-tvm-ffi): {_named(found.as_it_lay)}")
    if any(level.command for level in found.levels):
        print("type it in a checkout of KernelBench, with PYTHONPATH=src; what is left out counts there as wrong")
    return 0


def _rows(path: Path) -> tuple[Row, ...]:
    """The rows of a suite's directory, or of a file that `suite table --json` has written."""
    from kernel_agent.suite.rows import rows_of
    from kernel_agent.suite.store import read
    from kernel_agent.suite.table import rows_in

    if not path.is_file():
        return rows_of(read(path))
    try:
        return rows_in(path.read_text("utf-8"), str(path))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read ({error}).") from None


def new_directory(runs: Path, what: str, path: Path) -> Path:
    """A folder that is not there yet, named after a path and the time."""
    plain = re.sub(r"\W+", "-", path.resolve().stem).strip("-")[:80]
    stem = f"{what}-{plain}-{datetime.now():%Y%m%d-%H%M%S}"
    places = (runs / (stem if number == 1 else f"{stem}-{number}") for number in range(1, 1000))
    return next(place for place in places if not place.exists())


def _given(arguments: argparse.Namespace) -> dict[str, Any]:
    return {name: value for name, value in chosen_settings(arguments).items() if value is not None}


def _named(names: Iterable[str], between: str = ", ") -> str:
    every = tuple(names)
    more = f" and {len(every) - NAMED} more" if len(every) > NAMED else ""
    return f"{between.join(every[:NAMED])}{more}"


def _drawn(grid: Grid) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in grid.head:
        table.add_column(name, no_wrap=name == "problem")
    for line in grid.lines:
        table.add_row(*map(Text, line))
    return table


def _console() -> Any:
    from rich.console import Console

    terminal = Console(highlight=False)
    return terminal if terminal.is_terminal else Console(highlight=False, width=160, no_color=True)


ACTIONS: Commands = {
    "table": Command("what a suite came to: a line for each problem, and sums", _add_table, _table),
    "compare": Command(
        "what changed from suite A to suite B, and whether it is more than noise", _add_compare, _compare
    ),
    "confirm": Command("judge each delivered kernel again, as its file lies there", _add_confirm, _confirm),
    "export": Command("write the kernels as a run of KernelBench's scripts", _add_export, _export),
    "evaluate": Command("judge kernels made elsewhere on the problems at PATH", _add_evaluate, _evaluate),
}
"""What is done with a suite that was played, in the order of the help."""
