"""What matters in the output of a process that crashed."""

from __future__ import annotations

import re

FRAMES = 6
"""Frames of a native stack that are kept, from the innermost."""

FRAME = re.compile(r'\s*File "(?P<file>[^"]+)", line \d+, in (?P<name>.+)')
INTERPRETER = re.compile(
    r"(.*/Python-\d[^/]*/)?(\./)?(Objects|Python|Modules|Include|Parser)/|\./signal/|(.*/)?sysdeps/|<unknown>$"
)


def innermost(output: str) -> str:
    """The output with the first frames of a native stack, those of the interpreter and the C library left out.

    A function of C++ is known by its parameters, so it stays where its file is unknown, as a candidate's mostly is.
    """
    kept, frames = [], 0
    for row in output.splitlines():
        frame = FRAME.fullmatch(row)
        native = frame is not None and not frame["file"].endswith(".py")
        if frame and native and _interpreter(frame):
            continue
        frames += native
        if not native or frames <= FRAMES:
            kept.append(row)
    return "\n".join(kept).strip()


def _interpreter(frame: re.Match[str]) -> bool:
    return bool(INTERPRETER.match(frame["file"])) and ("(" not in frame["name"] or frame["name"].startswith("0x"))
