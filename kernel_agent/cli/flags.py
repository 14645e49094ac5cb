"""The commands and their flags, as argparse reads them."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from kernel_agent.cli.watched import Watched
from kernel_agent.errors import UsageError, meant, nearest

LEAST = 4
"""Characters of a flag that say which one is meant."""
FIRST = (
    "target",
    "num_rounds",
    "branching_factor",
    "implementations_per_idea",
    "provider",
    "model_name",
    "budget_minutes",
    "budget_dollars",
    "bind",
)
"""Settings that people look for first, in the order of the help."""
SAME = {
    "device": "target",
    "gpu": "target",
    "backend": "target",
    "iterations": "rounds",
    "iters": "rounds",
    "steps": "rounds",
    "llm": "model",
    "out": "run-directory",
    "output": "run-directory",
    "outdir": "run-directory",
    "output-dir": "run-directory",
    "timeout": "budget-minutes",
    "time-limit": "budget-minutes",
    "helpers": "with",
    "inputs": "shapes",
}
"""Other words for a flag, as other programs have them."""
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


class Command(NamedTuple):
    """One command: what `--help` says of it, what adds its own flags, what runs it, and whether it takes settings."""

    help: str
    add: Callable[[Parser], None]
    run: Callable[[argparse.Namespace, Watched], int]
    takes_settings: bool = False


Commands = Mapping[str, Command]


def parser(commands: Commands) -> Parser:
    """What reads them; the flags of `evaluate` are some of the settings, those of others that take them are all."""
    top = Parser(
        "python -m kernel_agent",
        description="Give it PyTorch code, get back a kernel that is checked, measured and faster.",
    )
    parsers = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, row in commands.items():
        command = parsers.add_parser(name, help=row.help)
        row.add(command)
        if row.takes_settings:
            command.allow_abbrev, command.epilog = False, keys_sentence()
            add_settings(command)
    return top


def add_run(command: Parser) -> None:
    """The flags of `run`."""
    command.usage = f"{command.prog} FILE [--rounds N] [--ideas N] [--target cpu|cuda|triton] [...]"
    command.add_argument(
        "file", metavar="FILE", type=Path, help="PyTorch source: a module, get_inputs, get_init_inputs"
    )
    _add_shapes(command)
    command.add_argument(
        "--run-directory", metavar="DIR", type=Path, help="where the run is kept (default: a new one in runs_dir)"
    )


def add_resume(command: Parser) -> None:
    """The flags of `resume`."""
    command.add_argument("directory", metavar="DIR", type=Path, help="the run's directory")


def add_show(command: Parser) -> None:
    """The flags of `show`."""
    add_resume(command)
    shown = command.add_mutually_exclusive_group()
    shown.add_argument("--tree", action="store_true", help="what came of what, with its speed-up")
    shown.add_argument("--diff", metavar="TRIAL", help="what a trial changed in its parent; its first letters will do")
    shown.add_argument("--json", action="store_true", help="print what was found as JSON, nothing else")
    command.add_argument(
        "--rewrite", action="store_true", help="write best_kernel.py and VERIFICATION.md anew from what is recorded"
    )
    command.add_argument("--bind", choices=("tvm_ffi", "torch"), help="with --rewrite: what binds the kernel")


def add_completion(command: Parser) -> None:
    """The flags of `completion`."""
    command.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell to write for")


def add_doctor(command: Parser) -> None:
    """The flags of `doctor` beside the settings."""
    command.add_argument("--json", action="store_true", help="a line of JSON for each check")


FILTERS = {
    "run": "of this run, by its name in the list",
    "problem": "of this problem",
    "target": "for this target",
    "arch": "on this architecture, such as sm_90",
    "family": "with operators of this family, such as norm",
    "bottleneck": "against this limit, such as dram-bw",
    "verdict": "that ended so: faster, slower, inconclusive, wrong ...",
}
"""What experience can be picked by; several together narrow it down."""


def add_experience(command: Parser) -> None:
    """The flags of `experience`."""
    actions = command.add_subparsers(dest="action", required=True, metavar="ACTION")
    list_ = actions.add_parser("list", help="a line for each idea that was tried", allow_abbrev=False)
    export = actions.add_parser("export", help="write records to FILE, a line of JSON each", allow_abbrev=False)
    import_ = actions.add_parser("import", help="take in the records of FILE, all or none", allow_abbrev=False)
    forget = actions.add_parser("forget", help="remove records, here and on the team's server", allow_abbrev=False)
    for action, way in ((export, "written; - is stdout"), (import_, "read; - is stdin")):
        action.add_argument("file", metavar="FILE", type=Path, help=f"the file that is {way}")
    for action in (list_, export, forget):
        for name, sentence in FILTERS.items():
            action.add_argument(f"--{name}", metavar=name.upper(), help=f"those {sentence}")
    forget.add_argument("--all", action="store_true", dest="everything", help="all there is, whatever it is")


def add_evaluate(command: Parser) -> None:
    """The flags of `evaluate`."""
    command.allow_abbrev = False
    command.add_argument(
        "candidate", metavar="CANDIDATE", type=Path, help="module with ModelNew; - reads it from stdin"
    )
    command.add_argument(
        "--problem",
        metavar="FILE",
        type=Path,
        required=True,
        help="what it stands in for: a module, get_inputs, get_init_inputs",
    )
    _add_shapes(command)
    command.add_argument(
        "--baselines",
        metavar="NAMES",
        type=lambda text: text.split(","),
        default=["eager", "compile"],
        help="what it is timed against (default: eager,compile)",
    )
    command.add_argument(
        "--rules", choices=("default", "strict"), default="default", help="strict: no library does part of the work"
    )
    command.add_argument("--json", action="store_true", help="print the server's whole result as JSON, nothing else")
    add_settings(command, only=("target", "mcp_server_path", "evaluation_timeout_s"))


def _add_shapes(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--input-shapes",
        "--shapes",
        nargs="+",
        action="append",
        metavar="64x1024",
        type=_shapes,
        help="a shape for each input, apart by blanks or commas, where FILE has no get_inputs; again for more sets",
    )
    command.add_argument(
        "--with",
        nargs="+",
        dest="helpers",
        metavar="FILE",
        type=Path,
        default=[],
        help="files beside it that it imports",
    )


def add_settings(command: argparse.ArgumentParser, only: Container[str] | None = None) -> None:
    from kernel_agent.settings import is_key, rows

    chosen = {row.name: row for row in rows() if not is_key(row.name) and (only is None or row.name in only)}
    first = [name for name in FIRST if name in chosen]
    often = command.add_argument_group("settings", "also read from the environment and .env")
    others = command.add_argument_group("other settings") if len(chosen) > len(first) else often
    for name in [*first, *(name for name in chosen if name not in first)]:
        row, group = chosen[name], often if name in first else others
        flags = [*([SHORT[name]] if name in SHORT else []), f"--{name.replace('_', '-')}"]
        default = f" (default: {row.default})" if row.default else ""
        among = f" One of {row.type}." if ", " in row.type else ""
        sentence = f"{row.sentence}{among}{default}".replace("%", "%%")
        if row.type == "yes or no":
            group.add_argument(*flags, dest=row.name, action=argparse.BooleanOptionalAction, help=sentence)
            continue
        group.add_argument(*flags, dest=row.name, metavar="NAME" if among else row.type.upper(), help=sentence)


def keys_sentence() -> str:
    from kernel_agent.settings import is_key, rows

    names = ", ".join(row.variable for row in rows() if is_key(row.name))
    return f"Keys are taken from the environment or .env alone: {names}."


def _shapes(text: str) -> list[tuple[int, ...]]:
    return [_shape(part) for part in text.split(",")]


def _shape(text: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(size) for size in text.split("x"))
    except ValueError:
        shape = (-1,)
    if min(shape) < 0:
        raise argparse.ArgumentTypeError(f"a shape is sizes joined by x, such as 64x1024, not {text}")
    return shape


def parsed(argv: Sequence[str] | None, commands: Commands) -> argparse.Namespace:
    """The command and its arguments. Raises UsageError with one sentence."""
    top = parser(commands)
    words = list(sys.argv[1:] if argv is None else argv)
    _check_command(top, commands, words)
    arguments, rest = top.parse_known_args(words)
    if rest:
        raise UsageError(
            f"Unrecognized arguments: {' '.join(rest)}{_meant(top, arguments.command, rest)}; "
            f"see `{top.prog} {arguments.command} --help`."
        )
    return arguments


def _meant(top: Parser, command: str, rest: Sequence[str]) -> str:
    """The flags that unknown ones are nearest to, in words."""
    chosen = next(a.choices for a in top._actions if isinstance(a, argparse._SubParsersAction))[command]
    flags = [flag for action in chosen._actions for flag in action.option_strings]
    unknown = [word.partition("=")[0] for word in rest if word.startswith("-")]
    near = dict.fromkeys(flag for word in unknown for flag in _near(word, flags))
    keys = f"; {keys_sentence()[0].lower()}{keys_sentence()[1:-1]}" if any("key" in word for word in unknown) else ""
    return f"; did you mean {', '.join(near)}?" if near else keys


def _near(word: str, flags: Sequence[str]) -> list[str]:
    """The flags that a word is the beginning of or another word for, else the one that is most alike."""
    bare = {flag.lstrip("-"): flag for flag in flags}
    begun = [flag for flag in flags if flag.startswith(word) and len(word) > LEAST]
    if begun:
        return begun
    found = SAME.get(word.lstrip("-")) or nearest(word.lstrip("-"), bare, 0.7)
    return [bare[found]] if found in bare else []


def _check_command(top: Parser, commands: Commands, words: Sequence[str]) -> None:
    """Raises UsageError, with what was probably meant, where no command is given or something else in its place."""
    first = words[0] if words else ""
    if first in commands or first.startswith("-"):
        if tuple(words) == ("run",):
            raise UsageError(f"Give the file with your PyTorch code, such as `{top.prog} run examples/softmax.py`.")
        return
    if not first:
        raise UsageError(
            f"Give a command: `{top.prog} run FILE` finds a faster kernel for the module in FILE, "
            f"`{top.prog} doctor` says what this machine can do, `{top.prog} --help` names all."
        )
    if Path(first).exists():
        command = "show" if Path(first).is_dir() else "run"
        raise UsageError(f"{first} is no command: give `{top.prog} {command} {shlex.quote(first)}`.")
    raise UsageError(f"There is no command {first}: there are {', '.join(commands)}.{meant(first, commands)}")


def input_shapes(arguments: argparse.Namespace) -> list[tuple[int, ...]] | list[list[tuple[int, ...]]] | None:
    """A shape for each input, a list of such where the flag is given several times, None where it is not given."""
    sets = [[shape for word in words for shape in word] for words in arguments.input_shapes or []]
    return sets if len(sets) > 1 else sets[0] if sets else None


def chosen_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """The settings that the command line gives; None where it leaves one alone."""
    from kernel_agent.settings import is_key, rows

    return {row.name: getattr(arguments, row.name, None) for row in rows() if not is_key(row.name)}
