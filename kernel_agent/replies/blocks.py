"""The code blocks of a reply, as CommonMark has them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from markdown_it import MarkdownIt

MARKDOWN = MarkdownIt("commonmark").disable(["html_block", "lheading", "reference", "heading", "hr", "blockquote"])
MARKDOWN.core.ruler.enableOnly(["block"])
"""Blocks alone. A tag such as <think> hides no fence that follows it, and no character is replaced."""

DEEPEST = 3
"""Indented blocks within one another whose content is read as Markdown again."""

FOREIGN = frozenset(
    ("c", "cc", "cpp", "c++", "cxx", "cu", "cuh", "cuda", "cuda-c++", "cuda-cpp", "h", "hpp", "hip", "ptx")
)
"""What C++ and its like are called behind a fence."""


@dataclass(frozen=True, slots=True)
class Block:
    """Code and its language, the first word behind its fence in small letters. `line` is the reply's of its first row.

    A block that nothing closes runs to the end of the reply, or of the list or quote that it stands in.
    """

    language: str
    code: str
    line: int
    closed: bool

    def covers(self, line: int) -> bool:
        """Whether that line of the reply is one of the block's."""
        return self.line <= line < self.line + len(self.code.split("\n"))


def blocks(text: str) -> list[Block]:
    """All fenced blocks in order: those in lists and quotes too, and those that are indented by four or more."""
    return list(_blocks(text, 0, 0))


def _blocks(text: str, above: int, depth: int) -> Iterator[Block]:
    for token in MARKDOWN.parse(text):
        if token.map is None:
            continue
        start, end = token.map
        if token.type == "fence":
            code, closed = token.content, len(token.content.splitlines()) == end - start - 2
            if not closed and code.rstrip().endswith(token.markup):  # a fence behind the last row, as models write it
                code, closed = code.rstrip().removesuffix(token.markup) + "\n", True
            language = (token.info.split() or [""])[0].lower().strip("{.}")
            yield Block(language, code, above + start + 2, closed)
        elif token.type == "code_block" and depth < DEEPEST:
            yield from _blocks(token.content, above + start, depth + 1)
