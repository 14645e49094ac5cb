"""Macros that a candidate's flags define, and that would rewrite the headers which tvm_ffi puts above its source."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from tvm_ffi.libinfo import find_include_path

FLAG = re.compile(r"-D\s*(([A-Za-z_]\w*)(?:=\S*)?)")
HEADERS = "#include <tvm/ffi/container/tensor.h>\n#include <tvm/ffi/function.h>\n"
CONTINUED = re.compile(r"\\\n")
NO_CODE = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|^[ \t]*#[^\n]*", re.DOTALL | re.MULTILINE)
WORD = re.compile(r"[A-Za-z_]\w*")


class HeaderMacro(RuntimeError):  # noqa: N818
    """A macro has the name of something in the headers."""


def explain(flags: Iterable[str]) -> None:
    """Raises HeaderMacro for a macro with which these headers alone do not compile; asked where a build has failed."""
    for flag, name in _suspects(" ".join(flags)):
        if not _compiles(flag):
            raise HeaderMacro(
                f"The flag -D{name} rewrites {name} in the headers that load_inline puts above the source: give the "
                f"macro (and its tunable) a name of two words or more, such as {name.upper()}_COUNT."
            )


def _suspects(flags: str) -> Iterator[tuple[str, str]]:
    """Flags that define what stands in tvm_ffi's code, or a single letter, with the name."""
    found = ((f"-D{match[1]}", match[2]) for match in FLAG.finditer(flags))
    return ((flag, name) for flag, name in found if len(name) == 1 or name in _words())


def _compiles(flag: str) -> bool:
    command = ["c++", "-std=c++17", "-fsyntax-only", "-x", "c++", f"-I{find_include_path()}", flag, "-"]
    return subprocess.run(command, input=HEADERS, text=True, capture_output=True, check=False).returncode == 0


@lru_cache(maxsize=1)
def _words() -> frozenset[str]:
    """The identifiers in the code of tvm_ffi's headers, without comments, strings and lines of the preprocessor."""
    texts = (CONTINUED.sub(" ", path.read_text()) for path in Path(find_include_path()).rglob("*.h"))
    return frozenset(word for text in texts for word in WORD.findall(NO_CODE.sub(" ", text)))
