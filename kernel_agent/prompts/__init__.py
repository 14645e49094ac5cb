"""The prompts: jinja2 texts beside this file, and the two filters that keep what is quoted from speaking."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from kernel_agent.run.types import digest
from kernel_agent.text import clean as clean
from kernel_agent.text import line as line

HERE = Path(__file__).parent


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
