"""JSON as models write it: with comments, trailing commas, other quotes and Python's words, between prose."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

BRACKETS = 1000
"""Places of a reply where its JSON may begin: a bound on the time that a hostile reply can take."""
WORK = 1_000_000
"""Tokens that are read of one reply, for the same reason."""

BRACKET = re.compile(r"[\[{]")
DECODER = json.JSONDecoder(strict=False)  # a string may run over several lines
TOKEN = re.compile(
    r"""(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\u201c[^\u201d]*\u201d|\u2018[^\u2019]*\u2019)
    |(?P<skipped>\s+|//[^\n]*|\#[^\n]*|/\*.*?\*/)
    |(?P<mark>[\[\]{},:])
    |(?P<word>[^\s\[\]{},:"'\#/\u201c\u2018]+)
    |(?P<other>.)""",
    re.DOTALL | re.VERBOSE,
)
WORDS = {
    "true": "true",
    "True": "true",
    "false": "false",
    "False": "false",
    "null": "null",
    "None": "null",
    "undefined": "null",
    "NaN": "NaN",
    "nan": "NaN",
    "Infinity": "Infinity",
    "inf": "Infinity",
    "-Infinity": "-Infinity",
    "-inf": "-Infinity",
}
NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
ESCAPE = re.compile(r"\\u[0-9a-fA-F]{4}|\\.|\"", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Fault:
    """Where what looked like JSON stops being it, as an index into the text, and why."""

    at: int
    reason: str


def values(text: str) -> tuple[list[Any], Fault | None]:
    """The lists and objects of the text that lie in no other, in order; and the fault that came furthest, if any."""
    found, worst, at, tokens = list[Any](), None, 0, WORK
    for _ in range(BRACKETS):
        if (bracket := BRACKET.search(text, at)) is None:
            break
        start = bracket.start()
        fault: Fault | None
        try:
            value, at = DECODER.raw_decode(text, start)
            found.append(value)
            continue
        except RecursionError:
            fault = Fault(start, "nested too deep")
        except ValueError as error:  # which a number of thousands of digits raises too
            fault = Fault(*(error.pos, error.msg) if isinstance(error, json.JSONDecodeError) else (start, str(error)))
            read, tokens = _relaxed(text, start, tokens) if tokens else (None, 0)
            if isinstance(read, tuple):
                value, at = read
                found.append(value)
                continue
            fault = max((one for one in (fault, read) if one), key=lambda one: one.at)
        at = start + 1
        worst = max((one for one in (worst, fault) if one), key=lambda one: one.at)
    return found, worst


def _relaxed(text: str, start: int, tokens: int) -> tuple[tuple[Any, int] | Fault | None, int]:
    """The value that begins there and its end, or its fault; and the tokens that are left to be read."""
    parts, places, depth = list[str](), list[int](), 0
    for found in TOKEN.finditer(text, start):
        kind, token, tokens = found.lastgroup, found.group(), tokens - 1
        if tokens <= 0:
            return None, 0
        if kind == "other":
            return Fault(found.start(), f"{token!r} is no JSON"), tokens
        if kind == "skipped":
            continue
        if token in ("]", "}") and parts and parts[-1] == ",":
            parts.pop()
            places.pop()
        parts.append(token if kind == "mark" else _string(token[1:-1]) if kind == "string" else _word(token))
        places.append(found.start())
        depth += (token in ("[", "{")) - (token in ("]", "}"))
        if not depth:
            return _loaded(parts, places, found.end()), tokens
    return None, tokens


def _string(body: str) -> str:
    def escaped(found: re.Match[str]) -> str:
        mark = found.group()
        if mark == '"' or mark[1] in '"\\/bfnrt' or len(mark) > 2:
            return '\\"' if mark == '"' else mark
        return "'" if mark == "\\'" else f"\\\\{mark[1:]}"  # an escape that JSON has not, as in "\d"

    return f'"{ESCAPE.sub(escaped, body)}"'


def _word(word: str) -> str:
    """A number or a word of JSON or Python; else a string, as keys without quotes and `1.6x` are meant."""
    return word if NUMBER.fullmatch(word) else WORDS.get(word) or json.dumps(word, ensure_ascii=False)


def _loaded(parts: list[str], places: list[int], end: int) -> tuple[Any, int] | Fault:
    try:
        return DECODER.decode("".join(parts)), end
    except json.JSONDecodeError as error:
        starts = accumulate(map(len, parts), initial=0)
        return Fault(places[min(bisect_right(list(starts), error.pos), len(places)) - 1], error.msg)
    except (ValueError, RecursionError) as error:
        return Fault(places[0], str(error))
