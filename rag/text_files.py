"""The one reader of texts that people hand in: UTF-8 with a mark or without, UTF-16 and UTF-32, any line ends.

And the one way to write a text that others watch for or that must not be lost.
"""

from __future__ import annotations

import codecs
import re
from pathlib import Path

MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before the mark of UTF-16, which it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
DECLARED = re.compile(rb"\A(?:[ \t]*(?:#[^\r\n]*)?(?:\r\n?|\n))?[ \t]*#[^\r\n]*?coding[:=][ \t]*([-\w.]+)")
"""The encoding that a Python source names in its first two lines (PEP 263)."""

SAMPLE = 1024


class NotText(ValueError):  # noqa: N818
    """The bytes are no text that can be read; the words say why, without the file's name."""


def read(path: Path, otherwise: str | None = None) -> str:
    """The text of a file; see decoded. Raises OSError, or NotText."""
    return decoded(path.read_bytes(), otherwise)


def write_whole(path: Path, text: str) -> None:
    """Write a text in UTF-8, whole or not at all: beside the file, then in its place. Raises OSError."""
    half = path.with_name(path.name + ".half")
    half.write_text(text, "utf-8")
    half.replace(path)


def decoded(data: bytes, otherwise: str | None = None) -> str:
    """The text, by its mark, by what a Python source declares, else as UTF-8; line ends are `\\n`.

    What is none of these is read in the encoding `otherwise`, where one is given. Raises NotText.
    """
    encoding = _encoding(data)
    try:
        text = plain_ends(data.decode(encoding))
        if "\0" in text:
            line = text.count("\n", 0, text.index("\0")) + 1
            raise NotText(f"is not text (a zero byte in line {line})")
        return text
    except UnicodeDecodeError as fault:
        if otherwise and encoding == "utf-8" and b"\0" not in data:
            return plain_ends(data.decode(otherwise, "replace"))
        line = data.count(b"\n", 0, fault.start) + 1
        where = f"byte 0x{data[fault.start]:02x} in line {line}" if encoding == "utf-8" else fault.reason
        raise NotText(f"is not text in {encoding.upper().removesuffix('-SIG')} ({where}): save it as UTF-8") from None
    except LookupError:
        raise NotText(f"declares the encoding {encoding}, which Python does not know: save it as UTF-8") from None


def plain_ends(text: str) -> str:
    """The text with `\\n` at the end of each line, and without a mark at its beginning."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _encoding(data: bytes) -> str:
    if marked := next((name for mark, name in MARKS if data.startswith(mark)), None):
        return marked
    start = data[:SAMPLE]
    if (
        b"\0" in start
    ):  # of text in UTF-16 half the bytes are zero where it is Latin, the first of each pair or the last
        even, odd = start[::2].count(0), start[1::2].count(0)
        if max(even, odd) * 4 > len(start) and min(even, odd) == 0:
            return "utf-16-be" if even else "utf-16-le"
    if declared := DECLARED.match(data):
        return declared[1].decode("ascii", "replace").lower()
    return "utf-8"
