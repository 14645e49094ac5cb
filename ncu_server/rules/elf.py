"""What a shared library asks of others: the names in its ELF dynamic section (64-bit little-endian; elf(5))."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SHT_DYNAMIC, SHT_DYNSYM = 6, 11
DT_NEEDED = 1
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
ENTRY = struct.Struct("<qQ")


@dataclass(frozen=True, slots=True)
class Asked:
    """Libraries that must be loaded beside it, and symbols that it uses and does not define."""

    libraries: tuple[str, ...] = ()
    symbols: tuple[str, ...] = ()


def read_symbols(path: Path) -> Asked:
    """Read `path`. Raises ValueError where it is not such a file or is cut short; OSError where it cannot be read."""
    data = path.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{path} is not a 64-bit little-endian ELF file")
    try:
        sections = list(_sections(data))
        needed = [
            _text(data, sections[s[6]], value)
            for s in sections
            if s[1] == SHT_DYNAMIC
            for tag, value in ENTRY.iter_unpack(_body(data, s))
            if tag == DT_NEEDED
        ]
        undefined = [
            _text(data, sections[s[6]], name)
            for s in sections
            if s[1] == SHT_DYNSYM
            for name, _, _, section, _, _ in SYMBOL.iter_unpack(_body(data, s))
            if section == 0 and name
        ]
    except (struct.error, IndexError, ValueError, OverflowError) as fault:
        raise ValueError(f"{path} is damaged: {fault}") from fault
    return Asked(tuple(needed), tuple(undefined))


def _sections(data: bytes) -> Iterator[tuple[int, ...]]:
    (start,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    for i in range(count):
        yield SECTION.unpack_from(data, start + i * size)


def _body(data: bytes, section: tuple[int, ...]) -> bytes:
    return data[section[4] : section[4] + section[5]]


def _text(data: bytes, strings: tuple[int, ...], offset: int) -> str:
    start = strings[4] + offset
    return data[start : data.index(b"\0", start)].decode(errors="replace")
