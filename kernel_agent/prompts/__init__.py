"""The prompts: jinja2 texts beside this file, and the two filters that keep what is quoted from speaking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from kernel_agent.run.types import digest
from kernel_agent.text import clean as clean
from kernel_agent.text import line as line

HERE = Path(__file__).parent
PART = "\x1e"
"""Stands before the name of each part of a prompt that is being rendered (the record separator of ASCII)."""


def data(text: str, label: str) -> str:
    """The text between two lines that bear an ID made from it, so that nothing within can end the block."""
    label, text = line(label), clean(text).strip("\n")
    mark, salt = digest(label, text)[:8], 0
    while mark in text:
        salt += 1
        mark = digest(label, text, salt)[:8]
    return f"<<<data {mark} {label}\n{text}\n>>>data {mark}"


def part(name: str) -> str:
    """The mark before a part of a prompt; `clean` leaves no such character in what others wrote."""
    return f"{PART}{name}"


def _environment() -> Environment:
    texts = Environment(
        loader=FileSystemLoader(HERE),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # the prompts are not HTML
    )
    texts.filters.update(data=data, line=line)
    texts.globals["part"] = part
    return texts


TEXTS = _environment()
TARGETS = tuple(sorted(path.name.removeprefix("target_").split(".")[0] for path in HERE.glob("target_*.md.j2")))
"""The targets whose contract is written down."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt, and the characters of each part: contract, problem, general, parent, profile, pages, history, ask."""

    text: str
    parts: Mapping[str, int]


def rendered(name: str, **facts: object) -> Rendered:
    """The prompt `name`.md.j2 with its facts filled in."""
    pieces = TEXTS.get_template(f"{name}.md.j2").render(**facts).split(PART)
    parts: dict[str, int] = {}
    for piece in pieces[1:]:
        title, _, text = piece.partition("\n")
        parts[title] = parts.get(title, 0) + len(text)
    texts = (piece.partition("\n")[2] for piece in pieces[1:])
    return Rendered("".join([pieces[0], *texts]).strip() + "\n", parts)


def render(name: str, **facts: object) -> str:
    """Its text alone."""
    return rendered(name, **facts).text
