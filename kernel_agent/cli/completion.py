"""What a shell needs to complete `kernel-agent`: its commands, their flags and the values of these."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Mapping

from kernel_agent.settings import rows
from kernel_agent.targets import TARGETS

PROGRAM = "kernel-agent"


def script(shell: str, parser: argparse.ArgumentParser) -> str:
    """The text that a `bash`, `zsh` or `fish` reads, such as by `eval "$(kernel-agent completion bash)"`."""
    commands = _commands(parser)
    return _fish(commands) if shell == "fish" else _bash(commands, shell)


def _commands(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    return next(a.choices for a in parser._actions if isinstance(a, argparse._SubParsersAction))


def _bash(commands: Mapping[str, argparse.ArgumentParser], shell: str) -> str:
    """One function for both: zsh reads it by bashcompinit. Where no word fits, files are completed."""
    lines = ["autoload -Uz +X bashcompinit && bashcompinit"] if shell == "zsh" else []
    lines += [
        "_kernel_agent() {",
        '  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words=""',
    ]
    lines += [
        '  case "$COMP_CWORD:${COMP_WORDS[1]} $before" in',
        f"    1:*) words={shlex.quote(' '.join(commands))} ;;",
    ]
    for name, command in commands.items():
        for flags, values in _valued(command):
            patterns = " | ".join(f'*:"{name} {flag}"' for flag in flags)
            lines.append(f"    {patterns}) words={shlex.quote(' '.join(values))} ;;")
        flags_ = shlex.quote(" ".join(flag for action in command._actions for flag in action.option_strings))
        words = shlex.quote(" ".join(_actions(command)))
        lines.append(f'    *:"{name} "*) words={words}; [[ "$word" == -* ]] && words={flags_} ;;')
    lines += ["  esac", '  COMPREPLY=($(compgen -W "$words" -- "$word"))', "}"]
    return "\n".join([*lines, f"complete -o default -F _kernel_agent {PROGRAM}", ""])


def _fish(commands: Mapping[str, argparse.ArgumentParser]) -> str:
    lines = []
    for name, command in commands.items():
        lines.append(f"complete -c {PROGRAM} -n __fish_use_subcommand -f -a {name}")
        here = f"complete -c {PROGRAM} -n {shlex.quote(f'__fish_seen_subcommand_from {name}')}"
        lines += [f"{here} -f -a {shlex.quote(' '.join(words))}" for words in [_actions(command)] if words]
        for action in command._actions:
            given = [_fish_flag(flag) for flag in action.option_strings]
            chosen = _values(action)
            values = [f"-x -a {shlex.quote(' '.join(chosen))}"] if chosen else []
            said = [f"-d {shlex.quote(action.help)}"] if action.help and action.help is not argparse.SUPPRESS else []
            if given:
                lines.append(" ".join([here, *given, *values, *said]))
    return "\n".join([*lines, ""])


def _fish_flag(flag: str) -> str:
    return f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"


def _valued(command: argparse.ArgumentParser) -> Iterator[tuple[list[str], list[str]]]:
    for action in command._actions:
        if action.option_strings and (values := _values(action)):
            yield list(action.option_strings), values


def _values(action: argparse.Action) -> list[str]:
    """What a flag may be given: its choices, or those of the setting that it is."""
    if action.dest == "target":
        return list(TARGETS)
    named = next((row.type for row in rows() if row.name == action.dest), "")
    return list(map(str, action.choices or ())) or (named.split(", ") if ", " in named else [])


def _actions(command: argparse.ArgumentParser) -> list[str]:
    """What may stand behind a command without a dash."""
    return [str(word) for a in command._actions if not a.option_strings and a.choices for word in a.choices]
