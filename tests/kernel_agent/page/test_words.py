"""Every outcome of a trial has a word, a colour and a place in the page."""

from __future__ import annotations

import re

from kernel_agent.page.render import _asset
from kernel_agent.run.types import Status


def test_each_status_has_a_word_and_a_colour_in_both_themes() -> None:
    words = _asset("format.js").partition("const STATUS = {")[2].partition("};")[0]
    styles = _asset("page.css")
    for status in set(Status) - {Status.PASSED}:
        assert re.search(rf"\b{status}: \"", words), status
        assert styles.count(f"--{status}:") == 2 and f".f-{status} " in styles, status
