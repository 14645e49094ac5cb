"""The command line: run, resume, show, doctor."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from kernel_agent.errors import KernelAgentError, Unavailable, UsageError
from kernel_agent.settings import is_key, load_settings, rows

if TYPE_CHECKING:
    from rich.console import Console

    from kernel_agent.events import Event, Observer

INTERRUPTED = 130
GRACE_S = 5.0
"""Seconds a run has to end its children after Ctrl-C."""

SHORT = {
    "num_rounds": "--rounds",
    "branching_factor": "--ideas",
    "implementations_per_idea": "--implementations",
    "model_name": "--model",
    "mcp_server_path": "--server",
}


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, as everything else here does."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message[:1].upper()}{message[1:]}; see `{self.prog} --help`.")


def parser() -> Parser:
    """The four commands; the flags of `run` and `resume` are the settings."""
    top = Parser(
        "kernel_agent", description="Give it PyTorch code, get back a kernel that is checked, measured and faster."
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    form: dict[str, Any] = {"epilog": _keys(), "allow_abbrev": False}
    run = commands.add_parser("run", help="find a faster kernel for the module in FILE", **form)
    run.add_argument("file", metavar="FILE", type=Path, help="PyTorch source: Model, get_inputs, get_init_inputs")
    run.add_argument(
        "--input-shapes", nargs="+", metavar="64x1024", type=_shape, help="inputs, where FILE has no get_inputs"
    )
    run.add_argument(
        "--run-directory", metavar="DIR", type=Path, help="where the run is kept (default: a new one in runs_dir)"
    )
    resume = commands.add_parser("resume", help="carry on a run that was stopped", **form)
    show = commands.add_parser("show", help="the account of a run, finished or not")
    for command in (resume, show):
        command.add_argument("directory", metavar="DIR", type=Path, help="the run's directory")
    doctor = commands.add_parser("doctor", help="what this machine can do, and what to do about what it cannot", **form)
    for command in (run, resume, doctor):
        _add_settings(command)
    return top


def _add_settings(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("settings", "also read from the environment and .env")
    for row in rows():
        if is_key(row.name):
            continue
        flags = [f"--{row.name.replace('_', '-')}", *([SHORT[row.name]] if row.name in SHORT else [])]
        default = f" (default: {row.default})" if row.default else ""
        among = f" One of {row.type}." if ", " in row.type else ""
        sentence = f"{row.sentence}{among}{default}".replace("%", "%%")
        group.add_argument(*flags, dest=row.name, metavar="NAME" if among else row.type.upper(), help=sentence)


def _keys() -> str:
    names = ", ".join(row.variable for row in rows() if is_key(row.name))
    return f"Keys are taken from the environment or .env alone: {names}."


def _shape(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(size) for size in text.split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"a shape is sizes joined by x, such as 64x1024, not {text}") from None


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 done, 2 usage, 3 not covered, 4 unavailable, 5 budget, 130 stopped."""
    watched = Watched()
    try:
        arguments = parser().parse_args(argv)
        commands: dict[str, Callable[[argparse.Namespace, Watched], int]] = {
            "run": _run,
            "resume": _resume,
            "show": _show,
            "doctor": _doctor,
        }
        return commands[arguments.command](arguments, watched)
    except KernelAgentError as fault:
        _say(f"error: {fault}")
        if watched.directory and isinstance(fault, Unavailable):
            _say(f"What is recorded is kept; go on with: python -m kernel_agent resume {watched.directory}")
        return fault.exit_code
    except (KeyboardInterrupt, asyncio.CancelledError):
        kept = f"; go on with: python -m kernel_agent resume {watched.directory}" if watched.directory else ""
        _say(f"stopped{kept}")
        return INTERRUPTED
    except BrokenPipeError:  # whoever read us has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


class Watched:
    """Passes events on and remembers where the run is kept."""

    def __init__(self) -> None:
        self.directory: Path | None = None
        self.retrieval: str | None = None

    def to(self, observer: Observer) -> Observer:
        from kernel_agent.events import RunStarted

        def observe(event: Event) -> None:
            if isinstance(event, RunStarted):
                self.directory, self.retrieval = event.directory, event.retrieval_mode
            observer(event)

        return observe


def _run(arguments: argparse.Namespace, watched: Watched) -> int:
    code = _source(arguments.file)
    with _display() as observer:
        agent = _agent(arguments, watched.to(observer))
        work = agent.generate_kernel(
            code, arguments.input_shapes, name=arguments.file.stem, run_directory=arguments.run_directory
        )
        _until_done(work)
    return _account(watched)


def _resume(arguments: argparse.Namespace, watched: Watched) -> int:
    watched.directory = arguments.directory
    with _display() as observer:
        _until_done(_agent(arguments, watched.to(observer)).resume(arguments.directory))
    return _account(watched)


def _show(arguments: argparse.Namespace, watched: Watched) -> int:
    results = arguments.directory / "results.json"
    retrieval = json.loads(results.read_text()).get("retrieval") if results.is_file() else None
    _print_account(arguments.directory, retrieval)
    return 0


def _doctor(arguments: argparse.Namespace, watched: Watched) -> int:
    from kernel_agent.doctor import examine, lines

    settings = load_settings(**_given(arguments))

    async def work() -> bool:
        able = False
        async for check in examine(settings):
            able = able or (check.name == "target cpu" and check.ok is True)
            for row in lines(check):
                print(row, flush=True)
        return able

    return 0 if _until_done(work()) else Unavailable.exit_code


def _source(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except FileNotFoundError:
        raise UsageError(f"There is no file {file}.") from None
    except OSError as error:
        raise UsageError(f"{file} cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not text in UTF-8.") from None


def _given(arguments: argparse.Namespace) -> dict[str, Any]:
    return {row.name: getattr(arguments, row.name, None) for row in rows() if not is_key(row.name)}


def _agent(arguments: argparse.Namespace, observer: Observer) -> Any:
    from kernel_agent.agent import KernelAgent

    return KernelAgent(observe=observer, **_given(arguments))


def _console() -> Console:
    from rich.console import Console

    terminal = Console(highlight=False)
    return terminal if terminal.is_terminal else Console(highlight=False, width=160, no_color=True)


@contextlib.contextmanager
def _display() -> Iterator[Observer]:
    from kernel_agent.report import Lines, Screen

    console = _console()
    if not console.is_terminal:
        yield Lines(lambda text: print(text, flush=True))
        return
    with Screen(console) as screen:
        yield screen


def _account(watched: Watched) -> int:
    assert watched.directory is not None, "a run that ends has started"
    _print_account(watched.directory, watched.retrieval)
    return 0


def _print_account(directory: Path, retrieval: str | None) -> None:
    from kernel_agent.journal import read
    from kernel_agent.report import account

    console = _console()
    for part in account(read(directory), directory, retrieval):
        console.print(part)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _until_done(work: Coroutine[Any, Any, Any]) -> Any:
    """Run the coroutine. The first Ctrl-C (or SIGTERM) cancels it, a second one ends the process at once.

    Where cancelling takes longer than GRACE_S the process ends too: the server's child sees its pipe close and goes.
    """

    async def cancellable() -> Any:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None, "this coroutine runs as a task"
        calls = 0

        def stop(*_: object) -> None:
            nonlocal calls
            calls += 1
            if calls > 1:
                os._exit(INTERRUPTED)
            _say("\nstopping; Ctrl-C again to stop at once")
            late.start()
            loop.call_soon_threadsafe(task.cancel)

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)
        return await work

    late = threading.Timer(GRACE_S, os._exit, (INTERRUPTED,))
    late.daemon = True
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        return asyncio.run(cancellable())
    finally:
        late.cancel()
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
            signal.signal(number, handler)
