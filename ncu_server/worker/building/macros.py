"""Macros that a candidate's flags define, and that would rewrite the headers which tvm_ffi puts above its source."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from tvm_ffi.libinfo import find_include_path

FLAG = re.compile(r"-D\s*([A-Za-z_]\w*)")
CONTINUED = re.compile(r"\\\n")
NO_CODE = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|^[ \t]*#[^\n]*", re.DOTALL | re.MULTILINE)
WORD = re.compile(r"[A-Za-z_]\w*")


class HeaderMacro(RuntimeError):  # noqa: N818
    """A macro has the name of something in the headers."""


def refuse(flags: Iterable[str]) -> None:
    """Raises HeaderMacro for a macro that these headers, or templates of the standard library, have as a name."""
    if clash := next(_clashing(FLAG.findall(" ".join(flags))), None):
        raise HeaderMacro(
            f"The flag -D{clash} would rewrite {clash} in the headers that load_inline puts above the source: give the "
            f"macro (and its tunable) a name of two words or more, such as {clash.upper()}_COUNT."
        )


def _clashing(names: list[str]) -> Iterator[str]:
    """Of the names those of one letter, which parameters of templates have everywhere, and those in tvm_ffi's code."""
    return (name for name in names if len(name) == 1 or name in _words())


@lru_cache(maxsize=1)
def _words() -> frozenset[str]:
    """The identifiers in the code of tvm_ffi's headers, without comments, strings and lines of the preprocessor."""
    texts = (CONTINUED.sub(" ", path.read_text()) for path in Path(find_include_path()).rglob("*.h"))
    return frozenset(word for text in texts for word in WORD.findall(NO_CODE.sub(" ", text)))
