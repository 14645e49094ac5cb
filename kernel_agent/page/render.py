"""Facts and texts as one HTML file that needs no network: data compressed, scripts and styles inside."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from kernel_agent.page.words import in_short, suite_in_short

Mode = Literal["run", "compare", "suites", "live"]
SCRIPTS = ("dom", "format", "tree", "diff", "detail", "hero", "charts", "table", "compare", "suites", "live", "main")
"""The page's own scripts, in the order in which they stand in it."""


def page(facts: Mapping[str, Any], texts: Mapping[str, Any]) -> str:
    """The page of one run."""
    return _filled("run", f"{facts['name']}: {facts['headline']['title']}", in_short(facts), facts, texts)


def comparison(runs: Sequence[Mapping[str, Any]]) -> str:
    """The page of several runs, by their facts."""
    names = ", ".join(dict.fromkeys(str(run["name"]) for run in runs))
    words = " ".join(in_short(run) for run in runs)
    return _filled("compare", f"{len(runs)} runs: {names}", words, [_slim(run) for run in runs], None)


def suites(found: Mapping[str, Any]) -> str:
    """The page of suites, by their facts and what changed between them."""
    names = ", ".join(dict.fromkeys(str(suite["name"]) for suite in found["suites"]))
    return _filled("suites", names, " ".join(suite_in_short(suite) for suite in found["suites"]), found, None)


def live() -> str:
    """The page that asks a server for what it draws."""
    return _filled("live", "KernelAgent", "it follows runs.", None, None)


def _slim(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What a comparison draws of a run."""
    kept = ("kind", "status", "speedup", "speedup_interval", "comparison", "judged_s", "spent_usd", "spent_tokens")
    trials = [{name: trial[name] for name in kept if name in trial} for trial in facts["trials"]]
    return {**facts, "trials": trials, "ideas": [], "unwritten": [], "ranking": []}


def _filled(mode: Mode, title: str, words: str, facts: object, texts: object) -> str:
    plot, own = _asset("uplot/uPlot.iife.min.js"), _script()
    parts = {
        "MODE": mode,
        "TITLE": html.escape(title),
        "PLAIN": html.escape(words),
        "POLICY": policy(),
        "STYLE": _asset("uplot/uPlot.min.css") + _asset("page.css"),
        "FACTS": packed(facts),
        "TEXTS": packed(texts),
        "PLOT": plot,
        "SCRIPT": own,
    }
    pieces = _asset("page.html").split("{{")
    filled = [pieces[0]]
    for piece in pieces[1:]:
        name, _, rest = piece.partition("}}")
        filled += (parts[name], rest)
    return "".join(filled)


def policy() -> str:
    """What the page may load: nothing but its own scripts, by their hashes, and its server where it has one."""
    scripts = " ".join(f"'sha256-{_sha(text)}'" for text in (_asset("uplot/uPlot.iife.min.js"), _script()))
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'"
    )


def packed(value: object) -> str:
    """A value as JSON, compressed, in letters that mean nothing in HTML; nothing for None."""
    if value is None:
        return ""
    plain = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    return base64.b64encode(gzip.compress(plain, 6, mtime=0)).decode("ascii")


@cache
def _script() -> str:
    return "'use strict';\n(() => {\n" + "\n".join(_asset(f"{name}.js") for name in SCRIPTS) + "\n})();"


@cache
def _asset(name: str) -> str:
    return files("kernel_agent.page").joinpath("assets", *name.split("/")).read_text("utf-8")


def _sha(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
