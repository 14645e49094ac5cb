"""HTML as Markdown by sections: what stands under an element with an id is found, and named, by that id."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_SKIPPED = frozenset({"script", "style", "nav", "footer", "noscript", "template", "svg", "head", "form", "button"})
_BLOCKS = frozenset(
    "p div section article main li ul ol dl dt dd table tr blockquote figure figcaption br hr".split()  # noqa: SIM905
)
_HEADINGS = {f"h{n}": n for n in range(1, 7)}
_VOID = frozenset(
    {"br", "hr", "img", "input", "link", "meta", "source", "wbr", "col", "area", "base", "embed", "track"}
)

DEEPEST = 100
"""Open elements among which the one that an end tag closes is looked for."""


def sections(text: str) -> list[tuple[str, str, str]]:
    """(id, title, body) of each section in reading order; the title is "page's title: heading", the body Markdown.

    A section begins at a `<section>`, `<article>` or heading that bears an id, or at a heading of the first two levels.
    """
    reader = _Reader()
    reader.feed(text)
    reader.close()
    page = " ".join(reader.title.split())
    found = []
    for name, heading, body in [*reader.done, reader.section()]:
        if body:
            title = heading if not page or not heading or heading == page else f"{page}: {heading}"
            found.append((name, title or page, body))
    return found


class _Reader(HTMLParser):
    """Collects text; keeps `<pre>` as a fence and the cells of a row on one line."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.done: list[tuple[str, str, str]] = []
        self.title = ""
        self._name, self._heading = "", ""
        self._text: list[str] = []
        self._skipped: list[str] = []
        self._held: list[str] | None = None
        self._in_title = self._in_pre = False

    def section(self) -> tuple[str, str, str]:
        """The section under way, as (id, heading, body)."""
        body = re.sub(r"[ \t]+\n", "\n", "".join(self._text))
        return self._name, " ".join(self._heading.split()), re.sub(r"\n{3,}", "\n\n", body).strip()

    def _begin(self, name: str) -> None:
        if self._text and "".join(self._text).strip():
            self.done.append(self.section())
            self._heading = ""
        self._name, self._text = name, []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        name = dict(attrs).get("id") or ""
        if tag == "title" and not self.title:
            self._in_title = True
        if (tag in _SKIPPED or self._skipped) and tag not in _VOID:
            self._skipped.append(tag)
        elif tag in _HEADINGS:
            if name or _HEADINGS[tag] <= 2:
                self._begin(name or self._name)
            self._held = []
        elif tag in ("section", "article") and name:
            self._begin(name)
        elif tag == "pre":
            self._in_pre = True
            self._text.append("\n\n```\n")
        elif tag in ("td", "th"):
            self._text.append(" | ")
        elif tag in _BLOCKS:
            self._text.append("\n- " if tag == "li" else "\n" if tag in ("tr", "br") else "\n\n")

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        if self._skipped:
            if tag in self._skipped[-DEEPEST:]:
                while self._skipped.pop() != tag:
                    pass
        elif tag in _HEADINGS and self._held is not None:
            heading, self._held = "".join(self._held).strip("\n ¶#"), None
            if "".join(self._text).strip() or self._heading:
                self._text.append(f"\n\n### {' '.join(heading.split())}\n\n")
            else:
                self._heading = heading
        elif tag == "pre":
            self._in_pre = False
            self._text.append("\n```\n\n")
        elif tag in _BLOCKS and tag != "tr":
            self._text.append("\n")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data
        if self._skipped:
            return
        if self._held is not None:
            self._held.append(data)
        else:
            self._text.append(data if self._in_pre else re.sub(r"\s+", " ", data))
