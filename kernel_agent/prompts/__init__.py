"""The prompts: jinja2 texts beside this file, and the two filters that keep what is quoted from speaking."""

from __future__ import annotations

import re
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from kernel_agent.types import digest

HERE = Path(__file__).parent
BREAKS = re.compile("\r\n|[\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")
UNSEEN = re.compile(
    "\x1b\\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0e-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]"
)


def clean(text: str) -> str:
    """The text with plain line ends and without terminal colours, control, direction and zero-width characters."""
    text = text.encode("utf-8", "replace").decode()
    return UNSEEN.sub("", BREAKS.sub("\n", text))


def line(text: str, limit: int = 200) -> str:
    """The text as one line of at most `limit` characters."""
    flat = " ".join(clean(text).split())
    return flat if len(flat) <= limit else flat[: limit - 3] + "..."


def data(text: str, label: str) -> str:
    """The text between two lines that bear an ID made from it, so that nothing within can end the block."""
    label, text = line(label), clean(text).strip("\n")
    mark, salt = digest(label, text)[:8], 0
    while mark in text:
        salt += 1
        mark = digest(label, text, salt)[:8]
    return f"<<<data {mark} {label}\n{text}\n>>>data {mark}"


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
    return texts


TEXTS = _environment()
TARGETS = tuple(sorted(path.name.removeprefix("target_").split(".")[0] for path in HERE.glob("target_*.md.j2")))
"""The targets whose contract is written down."""


def render(name: str, **facts: object) -> str:
    """The prompt `name`.md.j2 with its facts filled in."""
    return TEXTS.get_template(f"{name}.md.j2").render(**facts).strip() + "\n"
