"""Readers of the documents that users add: each turns one file into pages, or says in words why it cannot."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rag import text_files
from rag.documents.html import sections

PROSE = frozenset({".md", ".markdown", ".rst", ".txt"})
HTML = frozenset({".html", ".htm", ".xhtml"})
CODE = frozenset({".cu", ".cuh", ".h", ".hpp", ".hh", ".c", ".cc", ".cpp", ".cxx", ".inl", ".hip", ".py"})
SUFFIXES = PROSE | HTML | CODE | {".pdf", ".ipynb"}
LANGUAGE = {".cu": "cuda", ".cuh": "cuda", ".hip": "hip"}

LARGEST = {".pdf": 64 << 20}
LARGEST_TEXT = 8 << 20
"""Bytes. What is larger is data, or would hold up everything else."""

PDF_S = 120
PDF_MEMORY = 2 << 30
"""Seconds of processor time and bytes of memory that a PDF's reader may take, in a process of its own."""

CONTROL = re.compile(rb"[\x01-\x08\x0e-\x1a\x1c-\x1f\x7f]")
"""Bytes that stand in no text; more than one in a hundred make a file binary."""

UNUSUAL = re.compile(rb"[\x81\x8d\x8f\x90\x9d]|[\x80-\xff]{4,}")
"""What Latin-1 as Windows knows it has no letter for, and runs of letters that no language in it has."""

PART = 8000
"""Characters of prose under one heading from which on it is cut into parts that are found on their own."""


class UnreadableError(Exception):
    """The file gives no text; the words say why, and are what a list of skipped files counts by."""


@dataclass(frozen=True, slots=True)
class Part:
    """What is found and shown as one: a section, a page of a PDF, a source file. `anchor` names it in its file."""

    anchor: str
    title: str
    body: str
    is_code: bool = False


def fault(path: Path, size: int) -> str | None:
    """Why a file of this name and size would not be read, in words; None where it would."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        return f"no reader for {suffix or 'files without a suffix'}"
    largest = LARGEST.get(suffix, LARGEST_TEXT)
    if size > largest:
        return f"larger than {largest >> 20} MiB"
    return None if size else "empty"


def read(path: Path) -> list[Part]:
    """The parts of a file in their order. Raises UnreadableError, or OSError where the file system does."""
    if reason := fault(path, path.stat().st_size):
        raise UnreadableError(reason)
    suffix = path.suffix.lower()
    if suffix == ".pdf":
        parts = _pdf(path)
    elif suffix == ".ipynb":
        parts = _notebook(path, _text(path))
    elif suffix in HTML:
        parts = [Part(anchor, title or path.name, body) for anchor, title, body in sections(_text(path))]
    elif suffix in PROSE:
        parts = _markdown(path, _text(path))
    else:
        parts = [Part("", path.name, _text(path), is_code=True)]
    parts = [piece for part in parts if part.body.strip() for piece in _pieces(part)]
    if not parts:
        raise UnreadableError("no text in it")
    return _named_apart(parts)


def _named_apart(parts: list[Part]) -> list[Part]:
    """The parts with anchors that differ: the second `example` of a file is `example~2`."""
    times: Counter[str] = Counter()
    named = []
    for part in parts:
        times[part.anchor] += 1
        again = f"~{times[part.anchor]}" if times[part.anchor] > 1 else ""
        named.append(replace(part, anchor=part.anchor + again))
    return named


def _text(path: Path) -> str:
    data = path.read_bytes()
    try:
        text = text_files.decoded(data)
    except text_files.NotText:
        return _in_another_encoding(data)
    if not data.isascii() and sum(not c.isprintable() and not c.isspace() for c in text) > len(text) / 100:
        raise UnreadableError("binary")
    return text


def _in_another_encoding(data: bytes) -> str:
    if b"\0" in data or len(CONTROL.findall(data)) > len(data) / 100:
        raise UnreadableError("binary")
    if UNUSUAL.search(data):
        raise UnreadableError("text in an encoding that is not known: save it as UTF-8")
    try:
        return text_files.decoded(data, otherwise="cp1252")
    except text_files.NotText as fault:
        raise UnreadableError(str(fault)) from None


def _pieces(part: Part) -> list[Part]:
    """A long part as several, cut before a heading or else a paragraph."""
    if part.is_code or len(part.body) <= PART:
        return [part]
    pieces = [""]
    for block in re.split(r"\n(?=#)|\n\n", part.body):
        if pieces[-1] and len(pieces[-1]) + len(block) > PART:
            pieces.append("")
        pieces[-1] += block + "\n\n"
    return [replace(part, body=piece) for piece in pieces]


def _markdown(path: Path, text: str) -> list[Part]:
    """One part a heading of the first two levels. Front matter is not a text."""
    text = re.sub(r"\A---[ \t]*\n.*?\n---[ \t]*\n", "", text, flags=re.DOTALL)
    title, parts, fenced = "", [Part("", path.name, "")], False
    for line in text.split("\n"):
        fenced ^= line.lstrip().startswith(("```", "~~~"))
        heading = None if fenced else re.match(r"(#{1,2})\s+(\S.*)", line)
        if heading:
            said = heading[2].rstrip("# \t\r") or heading[2]
            title = title or said
            name = said if said == title else f"{title}: {said}"
            parts.append(Part(re.sub(r"\W+", "-", said.lower()).strip("-"), name, ""))
        else:
            last = parts[-1]
            parts[-1] = Part(last.anchor, last.title, f"{last.body}{line}\n")
    return parts


def _notebook(path: Path, text: str) -> list[Part]:
    try:
        cells: list[Any] = json.loads(text)["cells"]
        blocks = [(cell["cell_type"], "".join(cell["source"])) for cell in cells]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UnreadableError("no notebook in it") from error
    rows = [source if kind == "markdown" else f"```python\n{source}\n```" for kind, source in blocks if source.strip()]
    return _markdown(path, "\n\n".join(rows))


def _pdf(path: Path) -> list[Part]:
    """One part a page. pypdf reads it in a child, so that a hostile or endless file costs a file and not the run."""
    root = str(Path(__file__).resolve().parents[2])
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from rag.documents import readers as r; r.pdf_pages(sys.argv[2])"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-W", "ignore", "-c", code, root, str(path)], capture_output=True, timeout=3 * PDF_S
        )
        if done.returncode == 3:
            raise UnreadableError("PDF: pip install pypdf to read it")
        if done.returncode:
            said = re.findall(r"^(?:\w+\.)*(\w+)(?::|$)", done.stderr.decode(errors="replace"), re.MULTILINE)
            raise UnreadableError(f"PDF that pypdf cannot read ({said[-1] if said else 'it took too much'})")
        texts: list[str] = json.loads(done.stdout)
    except subprocess.TimeoutExpired as error:
        raise UnreadableError(f"PDF that takes more than {3 * PDF_S} s") from error
    if sum(map(len, texts)) < 20 * len(texts):
        raise UnreadableError("PDF of pictures: no text in it")
    return [Part(f"page={n}", f"{path.name}, page {n}", text) for n, text in enumerate(texts, 1)]


def pdf_pages(path: str) -> None:
    """The child's half: write the text of each page as JSON; end with 3 where pypdf is not installed."""
    resource.setrlimit(resource.RLIMIT_CPU, (PDF_S, PDF_S))
    resource.setrlimit(resource.RLIMIT_AS, (PDF_MEMORY, PDF_MEMORY))
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        import pypdf
    except ImportError:
        sys.exit(3)
    with pypdf.PdfReader(path) as reader:
        texts = [page.extract_text() for page in reader.pages]
    json.dump([text.encode("utf-8", "replace").decode() for text in texts], out)
    out.flush()
