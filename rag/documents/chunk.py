"""Pages cut into chunks: prose by heading, code by function; a fenced block is never split."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from rag.documents.page import Page

VERSION = 6
"""Part of every chunk's id: raise it whenever the cutting changes."""

CAP = 240
"""Tokens of a chunk with its heading. MiniLM reads 256 and drops the rest."""

_FULL_FILE = 6000
"""Characters up to which a hit on one function serves its whole file."""

_LONG = 3000
"""Characters from which on a function, or the head of a long file, is cut."""

_PIECES = re.compile(r"[A-Za-z]+|\d+|[^\sA-Za-z\d]")
_FENCE = re.compile(r"^ {0,3}(```|~~~)")
_HEADING = re.compile(r"^(#{1,4})[ \t]+(\S.*)")
_SENTENCE = re.compile(r"(?<=[.!?:])\s+|\n(?=[-*] )")
_MASKED = re.compile(r"""//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*+"?|'(?:\\.|[^'\\\n]){1,16}'""", re.DOTALL)
"""Comments, strings and characters, those that never end too: to look from each for its end would take the square."""
_TRANSPARENT = re.compile(r"\b(namespace|extern)\b[^;(]*$")
_CALLED = re.compile(r"([A-Za-z_]\w*)\s*\(")
_NAMED = re.compile(r"\b(?:struct|class|union|enum)\s+(?:\w+\s+)*?([A-Za-z_]\w*)")
_DECORATION = frozenset({"__launch_bounds__", "__attribute__", "alignas", "decltype", "__align__"})
_PYTHON_BLOCK = re.compile(r"^(?:@.*\n){0,20}(?:async[ ]+)?(?:def|class)[ ]+(\w+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A retrievable piece: `text` is served, `words` are indexed lexically, `embedded` is what the model reads."""

    id: str
    page: str
    heading: str
    text: str
    words: str
    embedded: str


def tokens(text: str) -> int:
    """An upper estimate of the number of WordPiece tokens, without loading a tokenizer."""
    return sum(1 + (len(piece) - 1) // (5 if piece.isalpha() else 2) for piece in _PIECES.findall(text))


def chunks(page: Page) -> list[Chunk]:
    """The page's chunks in reading order, each with an id that depends only on what it says and where."""
    parts = list(_code(page) if page.is_code else _prose(page))
    return [*_card(page, parts), *(_chunk(page, *part) for part in parts)]


def _card(page: Page, parts: list[tuple[str, str, str]]) -> list[Chunk]:
    """The chunk that is found by the page's signals (metrics, errors, APIs) and serves the page's first words."""
    if page.is_code or not page.signals or not parts:
        return []
    room = CAP - tokens(page.title)
    kept: list[str] = []
    for signal in page.signals:
        room -= tokens(signal) + 1
        if room >= 0:
            kept.append(signal)
    return [_chunk(page, "", parts[0][1], ", ".join(kept))]


def _chunk(page: Page, heading: str, text: str, words: str) -> Chunk:
    prefix = f"{page.title} > {heading}" if heading else page.title
    tags = ", ".join((*page.families, *page.bottlenecks))
    embedded = _clip(f"{prefix} ({tags})\n{words}" if page.is_code else f"{prefix}\n{words}", CAP)
    digest = hashlib.sha256("\0".join([str(VERSION), page.id, heading, text, embedded]).encode()).hexdigest()[:16]
    return Chunk(digest, page.id, heading, text, words, embedded)


def _clip(text: str, cap: int) -> str:
    kept: list[str] = []
    for line in text.splitlines():
        cap -= tokens(line)
        if cap < 0 and kept:
            break
        kept.append(line)
    return "\n".join(kept)


def _prose(page: Page) -> Iterator[tuple[str, str, str]]:
    for heading, body in _sections(page.body):
        room = CAP - tokens(f"{page.title} > {heading}")
        for text in _packed(body, room):
            yield heading, text, text


def _sections(body: str) -> Iterator[tuple[str, list[str]]]:
    """Pairs of heading path ("Costs > Registers") and lines. Headings inside fences are text."""
    path: dict[int, str] = {}
    lines: list[str] = []
    fenced = False
    for line in body.splitlines():
        fenced ^= bool(_FENCE.match(line))
        heading = None if fenced else _HEADING.match(line)
        if heading is None:
            lines.append(line)
            continue
        yield " > ".join(path.values()), lines
        lines, level = [], len(heading[1])
        path = {k: v for k, v in path.items() if k < level} | ({level: heading[2].rstrip(" \t#")} if level > 1 else {})
    yield " > ".join(path.values()), lines


def _packed(lines: list[str], room: int) -> Iterator[str]:
    """Paragraphs packed greedily into texts of at most `room` tokens; a fence longer than that stays whole."""
    held: list[str] = []
    size = 0
    for block in _blocks(lines):
        for piece in [block] if _FENCE.match(block) or tokens(block) <= room else _pieces(block, room):
            if held and size + tokens(piece) > room:
                yield "\n\n".join(held)
                held, size = [], 0
            held.append(piece)
            size += tokens(piece)
    if held:
        yield "\n\n".join(held)


def _blocks(lines: list[str]) -> Iterator[str]:
    held: list[str] = []
    fenced = False
    for line in [*lines, ""]:
        edge = bool(_FENCE.match(line))
        if (edge and not fenced) or (not line.strip() and not fenced):
            if any(held):
                yield "\n".join(held)
            held = []
        if line.strip() or fenced:
            held.append(line)
        fenced ^= edge
        if edge and not fenced:
            yield "\n".join(held)
            held = []
    if any(held):
        yield "\n".join(held)


def _pieces(block: str, room: int) -> Iterator[str]:
    return _rows(block, room) if block.startswith("|") else _sentences(block, room)


def _rows(table: str, room: int) -> Iterator[str]:
    """A table of Markdown cut between rows, its head above each part; a row longer than the room stays whole."""
    lines = table.split("\n")
    head, held = lines[: 2 if len(lines) > 1 and set(lines[1]) <= set("|:- ") else 0], list[str]()
    for row in lines[len(head) :]:
        if held and tokens("\n".join([*head, *held, row])) > room:
            yield "\n".join([*head, *held])
            held = []
        held.append(row)
    yield "\n".join([*head, *held])


def _sentences(block: str, room: int) -> Iterator[str]:
    held = ""
    for sentence in _SENTENCE.split(block):
        joined = f"{held} {sentence}" if held else sentence
        if held and tokens(joined) > room:
            yield held
            joined = sentence
        held = joined
    yield held


def _code(page: Page) -> Iterator[tuple[str, str, str]]:
    """The file's head (comments, includes, tunables), then one part a function; a short file is served whole."""
    found = functions(page.body) if not page.path.endswith(".py") else _python_functions(page.body)
    head = page.body[: found[0][1] if found else len(page.body)].strip("\n")
    if len(page.body) <= _FULL_FILE:
        whole = page.body.strip("\n")
        yield "", whole, head or page.title
        yield from ((name, whole, page.body[start:end].strip("\n")) for name, start, end in found)
        return
    for piece in _split(head):
        yield "", piece, piece
    top = head if len(head) <= _LONG else ""
    for name, start, end in found:
        for piece in _split(page.body[start:end].strip("\n")):
            yield name, f"{top}\n\n{piece}".strip("\n"), piece


def _split(text: str) -> Iterator[str]:
    """Code as pieces of about `_LONG` characters, cut at empty lines: a header's declarations, with their comments."""
    held = ""
    for block in text.split("\n\n"):
        if held and len(held) + len(block) > _LONG:
            yield held
            held = ""
        held = f"{held}\n\n{block}" if held else block
    if held.strip():
        yield held


def functions(source: str) -> list[tuple[str, int, int]]:
    """(name, start, end) of each top-level function or type of C-like source, with the comments before it.

    Braces of namespaces and extern "C" do not count as a level.
    """
    masked = _MASKED.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), source)
    found: list[tuple[str, int, int]] = []
    levels: list[bool] = []
    opened = brace = edge = 0
    for at in (m.start() for m in re.finditer(r"[{};]", masked)):
        outside = not any(levels)
        if masked[at] == "{":
            transparent = outside and bool(_TRANSPARENT.search(masked[edge:at]))
            levels.append(not transparent)
            opened, brace = (edge, at) if outside else (opened, brace)
            edge = at + 1 if transparent else edge
        elif masked[at] == "}" and levels:
            if levels.pop() and not any(levels):
                end = at + 2 if masked[at + 1 : at + 2] == ";" else at + 1
                start = found[-1][2] if found else _paragraph(source, opened, brace)
                found.append((_name(masked[opened:at]), start, end))
            edge = edge if any(levels) else at + 1
        elif masked[at] == ";" and outside:
            edge = at + 1
    return found


def _name(text: str) -> str:
    header = text.split("{", 1)[0][-_LONG:]
    called = [name for name in _CALLED.findall(header) if name not in _DECORATION]
    named = _NAMED.findall(re.sub(r"template\s*<[^>]*>", "", header))
    return next(iter(called or named), "block")


def _paragraph(source: str, low: int, brace: int) -> int:
    """Where the paragraph of a function's header begins, its own comment included."""
    gap = source.rfind("\n\n", low, brace)
    return low if gap < 0 else gap + 2


def _python_functions(source: str) -> list[tuple[str, int, int]]:
    starts = [(m[1], m.start()) for m in _PYTHON_BLOCK.finditer(source)]
    return [(name, start, end) for (name, start), (_, end) in pairwise([*starts, ("", len(source))])]
