"""Which line of a kernel's own file an inlined instruction comes from, by the cubins that a report holds.

NVIDIA's reader tells one line alone: of a header's code the header's or the caller's, of a function of the kernel's own
file the line that calls it (seen in reports of 2025.3). The chain of calls stands in the cubin's line table, which
`nvdisasm -gi` prints. ncu writes the cubin into a report as it is.
"""

from __future__ import annotations

import re
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

Place = tuple[str, int]
MAGIC, CUDA_MACHINE, HEADER = b"\x7fELF\x02", 190, struct.Struct("<16xHHIQQQIHHHHHH")
LINES, MOST_BYTES, TIMEOUT_S = b".debug_line", 16 << 20, 60.0
SECTION = re.compile(r"\s*\.section\s+\.text\.([^,\s]+)")
FRAME = re.compile(r'\s*//## File "([^"]*)", line (\d+)')
CODE = re.compile(r"\s*/\*([0-9a-f]+)\*/\s+\S")


def callers(report: bytes, nvdisasm: str) -> dict[str, dict[int, Place]]:
    """By kernel (mangled) and offset of an instruction that was inlined, the innermost line of the kernel's own file;
    what cannot be read is left out."""
    found: dict[str, dict[int, Place]] = {}
    for cubin in cubins(report):
        if LINES in cubin and len(cubin) <= MOST_BYTES:
            found |= callers_in(_listing(cubin, nvdisasm))
    return found


def cubins(report: bytes) -> Iterator[bytes]:
    """The CUDA objects that lie in a file uncompressed, each up to the end of its tables."""
    at = report.find(MAGIC)
    while at >= 0:
        header = report[at : at + HEADER.size]
        if len(header) == HEADER.size:
            _, machine, _, _, programs, sections, _, _, program, n_programs, section, n_sections, _ = HEADER.unpack(
                header
            )
            end = max(programs + program * n_programs, sections + section * n_sections)
            if machine == CUDA_MACHINE and at + end <= len(report):
                yield report[at : at + end]
        at = report.find(MAGIC, at + 1)


def _listing(cubin: bytes, nvdisasm: str) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(cubin)
        try:
            ended = subprocess.run([nvdisasm, "-gi", "-c", file.name], capture_output=True, timeout=TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired):
            return ""
    return ended.stdout.decode(errors="replace")


def callers_in(listing: str) -> dict[str, dict[int, Place]]:
    """The same of what `nvdisasm -gi -c` prints: the frames of an instruction stand above it, the innermost first."""
    found: dict[str, dict[int, Place]] = {}
    here: dict[int, Place] = {}
    frames: list[Place] = []
    whole = False
    for row in listing.splitlines():
        if section := SECTION.match(row):
            here, frames = found.setdefault(section[1], {}), []
        elif frame := FRAME.match(row):
            frames = [] if whole else frames
            frames.append((frame[1], int(frame[2])))
            whole = False
        elif code := CODE.match(row):
            whole = True
            if caller := _caller(frames):
                here[int(code[1], 16)] = caller
    return found


def _caller(frames: list[Place]) -> Place | None:
    """The innermost frame of the kernel's own file, where anything was inlined."""
    if len(frames) < 2:
        return None
    return next(frame for frame in frames if frame[0] == frames[-1][0])
