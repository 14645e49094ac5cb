"""Words of others, such as a model's or a kernel's own, as they may stand in a prompt or on a terminal."""

from __future__ import annotations

import re

BREAKS = re.compile("\r\n|[\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")
UNSEEN = re.compile(
    "\x1b\\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0e-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]"
)


ODD = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""All that `clean` would change: most texts have none of it."""


def clean(text: str) -> str:
    """The text with plain line ends and without terminal colours, control, direction and zero-width characters."""
    if not ODD.search(text):
        return text
    text = text.encode("utf-8", "replace").decode()
    return UNSEEN.sub("", BREAKS.sub("\n", text))


def line(text: str, limit: int = 200) -> str:
    """The text as one line of at most `limit` characters."""
    flat = " ".join(clean(text).split())
    return flat if len(flat) <= limit else flat[: limit - 3] + "..."
