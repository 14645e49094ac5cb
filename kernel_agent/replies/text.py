"""A reply's text without what a chat, an editor or a page leaves in it. No change here moves a line."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

UNSEEN = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")
BLANKS = re.compile("[\u00a0\u2000-\u200a\u202f\u205f\u3000]")
THOUGHT = re.compile(
    r"^[^\"'#\n]*?(?:</[ \t]*(?:think|thinking|thoughts?|reasoning|analysis|scratchpad|reflection)[ \t]*>|◁/think▷)",
    re.MULTILINE | re.IGNORECASE,
)
ENTITY = re.compile(r"&(?:lt|gt|amp|quot|apos|nbsp|#\d{1,6}|#x[0-9a-f]{1,6});", re.IGNORECASE)
STRAIGHT = str.maketrans(
    {
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u00ab\u00bb\u2033", '"'),
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u00b4", "'"),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"),
        "\u2026": "...",
    }
)


def plain(text: str) -> str:
    """The text with plain line ends and blanks, and without characters that nobody sees."""
    return BLANKS.sub(" ", UNSEEN.sub("", re.sub("\r\n?", "\n", text)))


def spoken(text: str) -> Iterator[str]:
    """The reply after the end of its thoughts, where that is marked; then the whole, thoughts included."""
    if ends := [found.end() for found in THOUGHT.finditer(text)]:
        yield "\n" * text.count("\n", 0, ends[-1]) + text[ends[-1] :]
    yield text


def variants(code: str) -> Iterator[str]:
    """The code as it stands, then as it was before a page or an editor changed its characters."""
    if ENTITY.search(code) and "<" not in code and "&" not in ENTITY.sub("", code):
        code = html.unescape(code)  # escaped throughout: also where it parses, its strings are not what was meant
    yield code
    seen = code
    for changed in (html.unescape(code), code.translate(STRAIGHT), html.unescape(code).translate(STRAIGHT)):
        for one in (changed, changed.expandtabs(4)):
            if one != seen:
                yield one
    if "\t" in code:
        yield code.expandtabs(4)
        yield code.expandtabs(8)
