"""A promised gain, read off the words in which a model gave it."""

from __future__ import annotations

import re

NUMBER = r"(?:\d+(?:[.,]\d+)?|[.,]\d+)(?:e[+-]?\d+)?"
GAIN = re.compile(
    rf"(?P<minus>(?<![\w.])-\s?)?(?P<number>{NUMBER})(?:\s*(?:-|to)\s*{NUMBER})?"
    r"(?:\s*-?(?:(?P<factor>x\b|fold\b|times\b)|(?P<share>%|per ?cent\b)))?",
    re.IGNORECASE,
)
PLAIN = str.maketrans("×％٪٫−–—", "x%%.---")
"""A promise in the many ways in which models write one."""


def factor(promise: str) -> float | None:
    """The factor over the parent that was promised; a share in percent is one over what was. None where it is none.

    Of several numbers it is the first that says it is a factor, else a share; of a range the lower end.
    """
    found = [*GAIN.finditer(promise.translate(PLAIN))]
    first = next((one for kind in ("factor", "share", "number") for one in found if one[kind]), None)
    if first is None:
        return None
    value = float(first["number"].replace(",", "."))
    value = 1 + value / 100 if first["share"] else value
    return value if 0 < value < 1e6 and not first["minus"] else None
