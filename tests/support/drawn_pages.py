"""Pages as a browser's parser sees them, and the data that they hold."""

from __future__ import annotations

import base64
import gzip
import json
from html.parser import HTMLParser
from typing import Any


class Elements(HTMLParser):
    """The elements of a page with what stands in them, as a browser's parser sees it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None], str]] = []
        self.open = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), ""))
        self.open = True

    def handle_endtag(self, tag: str) -> None:
        self.open = False

    def handle_data(self, data: str) -> None:
        if self.open:
            tag, attributes, before = self.found[-1]
            self.found[-1] = (tag, attributes, before + data)

    def all(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [(attributes, text) for name, attributes, text in self.found if name == tag]


def unpacked(text: str, name: str) -> Any:
    inside = next(text for attributes, text in Elements(text).all("script") if attributes.get("id") == name)
    return json.loads(gzip.decompress(base64.b64decode(inside)))
