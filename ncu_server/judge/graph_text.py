"""A traced graph in few words: a node a line, the way a person would write it down."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

MOST_LINES = 40
MOST_CHARACTERS = 2400
SHORT = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int64": "i64", "int32": "i32"}


def lines(graph: dict[str, Any]) -> list[str]:
    """The first nodes as `name = op(arguments) -> f32[64, 256]`, and last how many there are further, by operator."""
    shown: list[str] = []
    room = MOST_CHARACTERS
    nodes = graph["nodes"]
    for node in nodes[:MOST_LINES]:
        line = _line(node)
        room -= len(line)
        if room < 0:
            break
        shown.append(line)
    if rest := Counter(_operator(node) for node in nodes[len(shown) :]):
        kinds = ", ".join(f"{count} {op}" for op, count in rest.most_common(8))
        others = f", {len(rest) - 8} further operators" if len(rest) > 8 else ""
        shown.append(f"... {rest.total()} more nodes: {kinds}{others}")
    return shown


def _line(node: dict[str, Any]) -> str:
    given = [_word(a) for a in node["args"]] + [f"{k}={_word(v)}" for k, v in node["kwargs"].items()]
    made = ", ".join(tensor(o) for o in node["outputs"])
    line = f"{node['name']} = {_operator(node)}({', '.join(given)}) -> {made or 'no tensor'}"
    return line if len(line) <= 200 else f"{line[:200]}..."


def _operator(node: dict[str, Any]) -> str:
    return str(node["op"]).removeprefix("aten.").removesuffix(".default")


def tensor(shape: dict[str, Any]) -> str:
    """A shape as `f32[64, 256]`."""
    return f"{SHORT.get(shape['dtype'], shape['dtype'])}{shape['shape']}"


def _word(argument: Any) -> str:
    match argument:
        case {"node": name} | {"dtype": name} | {"float": name} | {"repr": name}:
            return str(name)
        case list():
            return f"[{', '.join(_word(part) for part in argument)}]"
    return json.dumps(argument)
