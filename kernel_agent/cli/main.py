"""The command line: what each command does, and their table."""

from __future__ import annotations

import argparse
import ast
import asyncio
import contextlib
import json
import os
import shlex
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_agent.cli import flags, page, suite
from kernel_agent.cli.flags import Command, Commands, chosen_settings, input_shapes, parsed
from kernel_agent.cli.watched import INTERRUPTED, Watched, say, until_done
from kernel_agent.errors import (
    BudgetSpent,
    KernelAgentError,
    MistypedSetting,
    ProblemError,
    Unavailable,
    UsageError,
    Waiting,
)

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from kernel_agent.interfaces import OnProgress
    from kernel_agent.run.events import Observer

NOT_PASSED = 6
PAGES = (".md", ".markdown", ".rst", ".txt", ".html")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    0 done, 2 usage, 4 unavailable, 5 budget, 6 a kernel that did not pass, 130 stopped.
    """
    watched = Watched()
    with _notices():
        return _ended(argv, watched)


@contextlib.contextmanager
def _notices() -> Iterator[None]:
    """A mistyped setting is named on stderr as a notice, in one line."""

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, MistypedSetting):
            say(f"notice: {message}")
        else:
            usual(message, category, *place, **more)

    with warnings.catch_warnings():
        warnings.simplefilter("always", MistypedSetting)
        usual, warnings.showwarning = warnings.showwarning, show
        yield


def _ended(argv: Sequence[str] | None, watched: Watched) -> int:
    try:
        arguments = parsed(argv, COMMANDS)
        return COMMANDS[arguments.command].run(arguments, watched)
    except Waiting as wait:
        for prompt in wait.prompts:
            print(prompt)
        say(f"waiting for {len(wait.prompts)} replies: answer each prompt in the .reply.md beside it")
        say(watched.stopped())
        return wait.exit_code
    except KernelAgentError as fault:
        say(f"error: {_in_flags(fault)}")
        if (on := watched.going_on()) and not isinstance(fault, UsageError):
            say(f"What is recorded is kept; {on}")
        return fault.exit_code
    except ImportError as missing:
        say(f"error: {_unmet(missing)}")
        return Unavailable.exit_code
    except (KeyboardInterrupt, asyncio.CancelledError):
        say(watched.stopped())
        return INTERRUPTED
    except BrokenPipeError:  # whoever read us has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _in_flags(fault: KernelAgentError) -> str:
    """The fault in the words of the command line."""
    if not isinstance(fault, ProblemError):
        return str(fault)
    return str(fault).replace("give input_shapes", "give --input-shapes 64x1024").replace(" input_", " --input-")


def _unmet(missing: ImportError) -> str:
    package = (missing.name or "that is needed").partition(".")[0]
    state = "is missing in" if isinstance(missing, ModuleNotFoundError) else f"({missing}) is of no use to"
    return f"The package {package} {state} this Python; activate .venv or pip install -r requirements.txt."


def _run(arguments: argparse.Namespace, watched: Watched) -> int:
    if arguments.file.suffix == ".ipynb":
        script = f"jupyter nbconvert --to script {shlex.quote(str(arguments.file))}"
        raise UsageError(f"{arguments.file} is a notebook: save the cell with the module as a .py file, or `{script}`.")
    code = _whole(arguments.file, arguments.helpers)
    with _display() as observer:
        agent = _agent(arguments, watched.to(observer))
        work = agent.generate_kernel(
            code, input_shapes(arguments), name=arguments.file.stem, run_directory=arguments.run_directory
        )
        until_done(work, watched)
    return _account(watched)


def _resume(arguments: argparse.Namespace, watched: Watched) -> int:
    with _display() as observer:
        until_done(_agent(arguments, watched.to(observer)).resume(arguments.directory), watched)
    return _account(watched)


def _show(arguments: argparse.Namespace, watched: Watched) -> int:
    from kernel_agent.cli.show import show

    _print(show(arguments))
    return 0


def _report(arguments: argparse.Namespace, watched: Watched) -> int:
    for row in page.report(arguments):
        print(row, flush=True)
    return 0


def _watch(arguments: argparse.Namespace, watched: Watched) -> int:
    for row in page.watch(arguments):
        print(row, flush=True)
    return 0


def _completion(arguments: argparse.Namespace, watched: Watched) -> int:
    from kernel_agent.cli.completion import script

    print(script(arguments.shell, flags.parser(COMMANDS)), end="")
    return 0


def _doctor(arguments: argparse.Namespace, watched: Watched) -> int:
    from kernel_agent.cli.doctor import examine, lines
    from kernel_agent.settings import load_settings

    settings = load_settings(**chosen_settings(arguments))

    async def work() -> bool:
        able = False
        async for check in examine(settings):
            able = able or (check.name == "target cpu" and check.ok is True)
            for row in lines(check):
                print(row, flush=True)
        return able

    return 0 if until_done(work(), watched) else Unavailable.exit_code


def _experience(arguments: argparse.Namespace, watched: Watched) -> int:
    from kernel_agent.cli import experience
    from kernel_agent.cli.flags import FILTERS

    chosen = {name: value for name in FILTERS if (value := getattr(arguments, name, None)) is not None}
    match arguments.action:
        case "list":
            rows = experience.listed(chosen)
        case "export":
            rows = experience.exported(chosen, arguments.file)
        case "import":
            rows = experience.imported(_source(arguments.file, stdin=True), str(arguments.file))
        case _:
            rows = experience.forgotten(chosen, arguments.everything)
    for row in rows:
        print(row)
    return 0


def _evaluate(arguments: argparse.Namespace, watched: Watched) -> int:
    from kernel_agent.bench.answers import EvaluateAnswer, parse
    from kernel_agent.cli.evaluate import judge, lines
    from kernel_agent.problem.from_source import load_problem
    from kernel_agent.run.types import Status
    from kernel_agent.settings import load_settings

    settings = load_settings(**chosen_settings(arguments))
    whole, name = _whole(arguments.problem, arguments.helpers), arguments.problem.stem
    problem = load_problem(whole, name, settings.target or "", input_shapes(arguments))
    candidate = _source(arguments.candidate, stdin=True)
    with _stage() as on_progress:
        judging = judge(settings, problem, candidate, arguments.baselines, arguments.rules, on_progress)
        problem, answer = until_done(judging, watched)
    found = parse(EvaluateAnswer, answer)
    for row in [json.dumps(answer, indent=2)] if arguments.json else lines(found, problem):
        print(row)
    return 0 if found.status is Status.PASSED else NOT_PASSED


def _whole(file: Path, helpers: Sequence[Path]) -> str:
    """A problem's text with the files that it imports."""
    from kernel_agent.problem.helpers import whole

    return whole(_python(file), file, {str(path): _source(path) for path in helpers})


def _python(file: Path) -> str:
    """A problem's text. Raises UsageError where the file is none of Python's by its name and its text."""
    source = _source(file)
    try:
        if file.suffix not in (".py", ""):
            ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        where = (
            "save its block of Python as a .py file" if file.suffix in PAGES else "give the .py file with the module"
        )
        raise UsageError(f"{file} is no Python file: {where}, such as examples/softmax.py.") from None
    return source


def _source(file: Path, stdin: bool = False) -> str:
    from rag.text_files import NotText, decoded

    piped = stdin and str(file) == "-"
    try:
        return decoded(sys.stdin.buffer.read() if piped else file.read_bytes())
    except FileNotFoundError:
        raise UsageError(f"There is no file {file}.") from None
    except IsADirectoryError:
        raise UsageError(f"{file} is a folder, and this takes one file: name the file in it.{_held(file)}") from None
    except OSError as error:
        raise UsageError(f"{file} cannot be read ({error.strerror}).") from None
    except NotText as fault:
        raise UsageError(f"{'Standard input' if piped else file} {fault}.") from None


def _held(folder: Path) -> str:
    """What somebody who named a folder may have meant."""
    if (folder / "journal.sqlite").is_file():
        return f" To go on with the run in it: python -m kernel_agent resume {shlex.quote(str(folder))}"
    files = sorted(path.name for path in folder.glob("*.py"))[:5]
    return f" It holds {', '.join(files)}." if files else ""


def _agent(arguments: argparse.Namespace, observer: Observer) -> Any:
    from kernel_agent.agent import KernelAgent

    return KernelAgent(observe=observer, **chosen_settings(arguments))


def _console() -> Console:
    from rich.console import Console

    terminal = Console(highlight=False)
    return terminal if terminal.is_terminal else Console(highlight=False, width=160, no_color=True)


@contextlib.contextmanager
def _stage() -> Iterator[OnProgress]:
    """Shows on stderr, where that is a terminal, what is being done; stdout is for the verdict alone."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    with console.status("starting") as status:
        yield lambda stage: status.update(stage.message)


@contextlib.contextmanager
def _display() -> Iterator[Observer]:
    from kernel_agent.cli.report import Lines, Screen

    console = _console()
    if not console.is_terminal:
        yield Lines(lambda text: print(text, flush=True))
        return
    with Screen(console) as screen:
        yield screen


def _account(watched: Watched) -> int:
    assert watched.directory is not None, "a run that ends has started"
    _print_account(watched.directory, watched.retrieval)
    if watched.spent is None:
        return 0
    say(f"{watched.spent} What is above is the best so far.")
    return BudgetSpent.exit_code


def _print_account(directory: Path, retrieval: str | None) -> None:
    from kernel_agent.cli.report import account
    from kernel_agent.run.journal import read

    _print(account(read(directory), directory, retrieval))


def _print(parts: Iterable[RenderableType]) -> None:
    from rich.text import Text

    console = _console()
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, Text) and bool(part.no_wrap))


COMMANDS: Commands = {
    "run": Command("find a faster kernel for the module in FILE", flags.add_run, _run, takes_settings=True),
    "resume": Command("carry on a run that was stopped", flags.add_resume, _resume, takes_settings=True),
    "show": Command("the account of a run, finished or not", flags.add_show, _show),
    "report": Command("a page of one run, or of several side by side", page.add_report, _report),
    "watch": Command("a page that follows runs while they go on", page.add_watch, _watch),
    "suite": Command(
        "many problems under one budget: run, resume, table, compare, confirm, export, evaluate", suite.add, suite.run
    ),
    "evaluate": Command("judge one kernel that is there already", flags.add_evaluate, _evaluate),
    "experience": Command(
        "what earlier runs measured: list, export, import, forget", flags.add_experience, _experience
    ),
    "doctor": Command(
        "what this machine can do, and what to do about what it cannot", flags.add_doctor, _doctor, takes_settings=True
    ),
    "completion": Command("what completes commands and flags in a shell", flags.add_completion, _completion),
}
"""The commands, in the order of the help."""
