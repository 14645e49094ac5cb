"""Nsight Compute's command line: what is asked of it, what it says while it works, and why it refuses."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ncu_server.errors import Code, Refusal
from ncu_server.profiler.metrics import ROWS

SETS = {"basic": ("--set", "basic"), "full": ("--set", "full")}
STANDARD = ("SpeedOfLight_RooflineChart", *dict.fromkeys(row.section for row in ROWS.values() if row.section))
PLACES = ("/usr/local/cuda/bin", "/opt/nvidia/nsight-compute/*")
SECTION = re.compile(r"\w{1,64}")

SAID = re.compile(rb"==(PROF|ERROR|WARNING)== (.*)")
PROFILING = re.compile(rb'Profiling "(.*?)"[^:]*: ?([\d.%]*)(?: - (\d+) pass(?:es)?)?')
SHARE = re.compile(rb"(\d+)%")
LISTED = re.compile(rb"\s*\d+\. (\S.*)")
LONGEST_LINE, KEPT_LINES = 4096, 400
# What ncu prints after ==ERROR==, and what that is.
ERRORS: tuple[tuple[re.Pattern[str], Code, str, str], ...] = (
    (
        re.compile(r"ERR_NVGPUCTRPERM\b.*"),
        Code.COUNTERS_DENIED,
        "this user may not read the GPU's counters",
        "run the server as root or with CAP_SYS_ADMIN, or load the driver with NVreg_RestrictProfilingToAdminUsers=0",
    ),
    (
        re.compile(r".*driver resource was unavailable.*|.*(?:ResourceUnavailable|DEVICE_BUSY)\b.*"),
        Code.COUNTERS_BUSY,
        "another profiler holds the GPU's counters",
        "stop it (DCGM: `dcgmi profile --pause`), then call again",
    ),
    (
        re.compile(r".*(?:InterprocessLock\w*|[Ll]ock file)\b.*"),
        Code.LOCKED,
        "the lock file of Nsight Compute cannot be taken",
        "end the other ncu, or remove nsight-compute-lock in TMPDIR where it is another user's, then call again",
    ),
)


@dataclass(frozen=True, slots=True)
class Selection:
    """What is collected of which launches. `detail` is basic, standard, full, or names of sections with commas."""

    detail: str = "standard"
    kernel: str | None = None
    skip: int = 0
    count: int = 16
    clock: str = "base"

    @property
    def words(self) -> str:
        """For the reader of the numbers."""
        return f"{self.detail}; clock control {self.clock}, cache control all"


@dataclass(slots=True)
class Heard:
    """What ncu has said so far; fed with bytes, since its progress comes in dots without a line's end."""

    connected: bool = False
    kernels: list[tuple[str, int]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    nothing: bool = False
    seen: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    _rest: bytes = b""
    _listing: bool = False

    def feed(self, part: bytes) -> str | None:
        """Take in more output; what is being done, in words, where that can be told from it."""
        *whole, self._rest = (self._rest + part).split(b"\n")
        self._rest = self._rest[-LONGEST_LINE:]
        for line in whole:
            self._line(line.rstrip(b"\r"))
        return self._now(self._rest) or (self._now(whole[-1]) if whole else None)

    def end(self) -> None:
        """No more will come."""
        self.feed(b"\n" if self._rest else b"")

    def _line(self, line: bytes) -> None:
        if len(self.lines) < KEPT_LINES:
            self.lines.append(line[:LONGEST_LINE].decode(errors="replace"))
        said = SAID.match(line)
        if said is None:
            if self._listing and (listed := LISTED.fullmatch(line)):
                self.seen.append(listed[1].decode(errors="replace"))
            self._listing = self._listing or line.strip() == b"Available Kernels:"
            return
        kind, text = said[1], said[2]
        if kind == b"ERROR":
            self.errors.append(text.decode(errors="replace").strip())
        elif kind == b"WARNING":
            self.nothing = self.nothing or text.startswith(b"No kernels were profiled")
        elif text.startswith(b"Connected to process"):
            self.connected = True
        elif found := PROFILING.match(text):
            self.kernels.append((found[1].decode(errors="replace"), int(found[3] or 0)))

    def _now(self, line: bytes) -> str | None:
        said = SAID.match(line)
        found = PROFILING.match(said[2]) if said else None
        if found is None:
            return None
        shares = SHARE.findall(found[2])
        return f"profiling {found[1].decode(errors='replace')[:60]}: {int(shares[-1]) if shares else 0} %"

    def refusal(self) -> Refusal | None:
        """Why ncu could not do its work, where it says so."""
        for error in self.errors:
            for pattern, code, reason, fix in ERRORS:
                if pattern.fullmatch(error):
                    return Refusal(code, reason, fix)
        return None

    @property
    def log(self) -> str:
        return "\n".join(self.lines)


def find() -> str | None:
    """Where ncu is: on PATH, in CUDA_HOME, or where its installers put it."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    there = shutil.which("ncu") or (shutil.which("ncu", path=f"{home}/bin") if home else None)
    if there:
        return there
    places = [str(p) for pattern in PLACES for p in sorted(Path("/").glob(pattern.lstrip("/")), reverse=True)]
    return shutil.which("ncu", path=os.pathsep.join(places)) if places else None


def command(program: str, selection: Selection, output: Path, target: Sequence[str], from_start: bool) -> list[str]:
    """The command line that profiles `target`; not `from_start` waits for cudaProfilerStart.

    Raises Refusal BAD_ARGUMENT for a detail or a regular expression that is none.
    """
    line = [program, "--target-processes", "all", "--null-stdin", "--force-overwrite", "--export", str(output)]
    line += ["--import-source", "yes", "--nvtx", "--clock-control", selection.clock, "--cache-control", "all"]
    line += [*_collecting(selection.detail), "--launch-count", str(selection.count)]
    if selection.skip:
        line += ["--launch-skip", str(selection.skip)]
    if selection.kernel:
        try:
            re.compile(selection.kernel)
        except re.error as fault:
            raise Refusal(Code.BAD_ARGUMENT, f"kernel_regex is no regular expression: {fault}") from None
        line += ["--kernel-name", f"regex:{selection.kernel}"]
    if not from_start:
        line += ["--profile-from-start", "off"]
    return [*line, "--", *target]


def _collecting(detail: str) -> list[str]:
    if detail in SETS:
        return list(SETS[detail])
    sections = STANDARD if detail == "standard" else tuple(name.strip() for name in detail.split(","))
    if bad := [name for name in sections if not SECTION.fullmatch(name)]:
        known = ", ".join(("standard", *SETS))
        raise Refusal(
            Code.BAD_ARGUMENT, f"{bad[0]!r} is no section of ncu", f"detail is {known}, or sections with commas"
        )
    return [word for name in sections for word in ("--section", name)]
