"""A page of the corpus: text under front matter. Markdown between two `---` lines, kernels inside a leading comment."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import yaml

from rag.errors import LibraryError
from rag.retrieval.passage import Kind

_BOTTLENECKS = "dram-bw l2-bw smem latency occupancy compute tensor sync launch tail numerics build none"
_FAMILIES = "pointwise reduction softmax norm scan sort gemm conv pooling attention recurrent loss gather layout"
_LANGUAGES = "cuda cpp triton hip python"
_DTYPES = "float64 float32 float16 bfloat16 float8 int64 int32 int16 int8 uint8 bool complex64"
BOTTLENECKS, FAMILIES, LANGUAGES, DTYPES = (
    frozenset(names.split()) for names in (_BOTTLENECKS, _FAMILIES, _LANGUAGES, _DTYPES)
)

_MARKDOWN = re.compile(r"\A---[ \t]*\n(?P<yaml>.*?)\n---[ \t]*\n(?P<body>.*)\Z", re.DOTALL)
_C_COMMENT = re.compile(r"\A\s*/\*\s*---[ \t]*\n(?P<yaml>.*?)\n[ \t*]*---\s*\*/[ \t]*\n?(?P<body>.*)\Z", re.DOTALL)
_HASH_COMMENT = re.compile(
    r"\A[ \t]*# ?---[ \t]*\n(?P<yaml>(?:#[^\n]*\n)*?)[ \t]*# ?---[ \t]*\n(?P<body>.*)\Z", re.DOTALL
)
_GPU_ARCH = re.compile(r"sm_(\d+)[af]?(\+?)")
_OTHER_GPU = re.compile(r"gfx[0-9a-f]+")
_CPU_ARCH = re.compile(r"(cpu|x86|amd64|aarch64|arm|avx|sse|neon|sve|riscv|ppc)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Page:
    """One file of the corpus, or a part of a document that the user added.

    `path` is relative to the corpus, or the document's own; empty `archs` or `languages` exclude nobody.
    """

    id: str
    title: str
    path: str
    body: str
    archs: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    bottlenecks: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    signals: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    since: str = ""
    license: str = ""
    kind: Kind = "page"
    is_code: bool = False


def parse(path: str, text: str) -> Page:
    """The page in `text`. Unknown keys are left alone. Raises LibraryError where there is no usable front matter."""
    patterns = (_MARKDOWN,) if path.endswith(".md") else (_C_COMMENT, _HASH_COMMENT)
    match = next((m for p in patterns if (m := p.match(text))), None)
    if match is None:
        where = (
            "between two '---' lines at its top" if path.endswith(".md") else "in a leading comment /* --- ... --- */"
        )
        raise LibraryError(f"{path}: no front matter; every corpus file needs at least id and title {where}")
    fields = _fields(path, match["yaml"])
    for key in ("id", "title"):
        if not isinstance(fields.get(key), str) or not fields[key].strip():
            raise LibraryError(f"{path}: the front matter has no {key}")
    lists = ("archs", "families", "bottlenecks", "languages", "dtypes", "signals", "sources")
    return Page(
        id=fields["id"].strip(),
        title=fields["title"].strip(),
        path=path,
        body=match["body"],
        since=str(fields.get("since") or ""),
        license=str(fields.get("license") or ""),
        kind="page" if path.endswith(".md") else "kernel",
        is_code=not path.endswith(".md"),
        **{key: _strings(path, key, fields.get(key)) for key in lists},
    )


def _fields(path: str, front: str) -> dict[str, Any]:
    margin = re.compile(r"^[ \t]*(\*|#|//)[ \t]?", re.MULTILINE)
    plain = front if path.endswith(".md") else margin.sub("", front)
    try:
        fields = yaml.safe_load(textwrap.dedent(plain))
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise LibraryError(f"{path}: the front matter is not valid YAML: {reason}") from error
    if not isinstance(fields, dict):
        raise LibraryError(f"{path}: the front matter is not a list of `key: value` lines")
    return fields


def _strings(path: str, key: str, value: object) -> tuple[str, ...]:
    items = [] if value is None else value if isinstance(value, list) else [value]
    if any(isinstance(item, (dict, list)) for item in items):
        raise LibraryError(f"{path}: {key} must be a plain list of words")
    return tuple(str(item).strip() for item in items)


def serves_arch(archs: tuple[str, ...], wanted: str | None) -> bool:
    """Whether a page written for `archs` may be shown for `wanted`.

    `any` serves all, `sm_80+` that compute capability and every later one, `sm_90` (and `sm_90a`) only itself, `cpu`
    every CPU. Raises LibraryError for a name of no known form, so that a misspelt filter never opens up.
    """
    if wanted is None:
        return True
    gpu = _GPU_ARCH.fullmatch(wanted)
    if not gpu and not _OTHER_GPU.fullmatch(wanted) and not _CPU_ARCH.match(wanted):
        raise LibraryError(f"unknown architecture {wanted!r}: say for example sm_90, gfx942, cpu or x86_64")
    return not archs or any(_covers(own, wanted, gpu) for own in archs)


def _covers(own: str, wanted: str, gpu: re.Match[str] | None) -> bool:
    if own in ("any", wanted):
        return True
    mine = _GPU_ARCH.fullmatch(own)
    if mine and gpu:
        return int(gpu[1]) >= int(mine[1]) if mine[2] else int(gpu[1]) == int(mine[1])
    return own == "cpu" and gpu is None and _CPU_ARCH.match(wanted) is not None


def serves_language(languages: tuple[str, ...], wanted: str | None) -> bool:
    """Whether a page in `languages` may be shown for `wanted`. Raises LibraryError for an unknown language."""
    if wanted is None:
        return True
    if wanted not in LANGUAGES:
        raise LibraryError(f"unknown language {wanted!r}: one of {', '.join(sorted(LANGUAGES))}")
    return not languages or wanted in languages


def problems(pages: Iterable[Page]) -> list[str]:
    """Every fault of the pages' front matter, one sentence each: repeated ids, tags outside the closed lists, gaps."""
    pages = list(pages)
    counts = Counter(page.id for page in pages)
    found = [f"id {name!r} is used by {n} files" for name, n in sorted(counts.items()) if n > 1]
    for page in pages:
        found += [f"{page.path}: {fault}" for fault in _faults(page)]
    return found


def _faults(page: Page) -> Iterable[str]:
    closed = (("bottlenecks", BOTTLENECKS), ("families", FAMILIES), ("languages", LANGUAGES), ("dtypes", DTYPES))
    for key, allowed in closed:
        for tag in getattr(page, key):
            if tag not in allowed:
                yield f"{key} has {tag!r}, which is not in the closed list"
    for arch in page.archs:
        if arch not in ("any", "cpu") and not _GPU_ARCH.fullmatch(arch) and not _OTHER_GPU.fullmatch(arch):
            yield f"archs has {arch!r}; say any, cpu, sm_80+, sm_90 or gfx942"
    needed = ["archs", "families", "bottlenecks", "languages"]
    if not page.is_code:
        needed += ["dtypes", "signals", "sources", "since", "license"]
        if page.id != PurePosixPath(page.path).stem:
            yield f"the id {page.id!r} differs from the file's name"
    for key in needed:
        if not getattr(page, key):
            yield f"{key} is missing"
