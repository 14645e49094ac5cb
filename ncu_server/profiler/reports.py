"""Reports on disk, so that their ids outlive the server: what ncu wrote, the facts read off it, and how it came about.

An id is made from the report's bytes. The least recently used go where all together grow over the cap.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import mmap
import os
import re
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pydantic import BaseModel, ValidationError

from ncu_server.errors import Code, Refusal
from ncu_server.machine import toolkit
from ncu_server.machine.store import Store
from ncu_server.profiler.facts import KernelFacts, ReportFacts
from ncu_server.sandbox.supervisor import Supervisor

CAP_VARIABLE, CAP_MIB = "NCU_SERVER_REPORTS_MIB", 2048
READ_TIMEOUT_S = 180.0
WRITER = re.compile(rb"(20\d\d\.\d+\.\d+\.\d+) \(build")
FOLDER = re.compile(r"(20\d\d)\.(\d+)")
INSTALLS = ("/usr/local/cuda*/nsight-compute-*", "/opt/nvidia/nsight-compute/*", "/opt/cuda/nsight_compute")
RAW, FACTS, ABOUT, LOG = "report.ncu-rep", "facts.json", "about.json", "log.txt"

Version = tuple[int, int]


def is_id(text: str) -> bool:
    """Whether a text has the form of a report's id."""
    return re.fullmatch(r"[0-9a-f]{12}", text) is not None


class About(BaseModel):
    """How a report came about. `collected` says sections, clock and cache control; `source` is the candidate's text."""

    writer: str | None = None
    device: str | None = None
    arch: str | None = None
    collected: str | None = None
    source: str | None = None
    copy_gbps: float | None = None
    notes: list[str] = []


class Entry:
    """One report of the store."""

    def __init__(self, identity: str, place: Path, about: About) -> None:
        self.identity, self.place, self.about = identity, place, about

    @property
    def kernels(self) -> list[KernelFacts]:
        """The facts. Raises Refusal UNKNOWN_REPORT where another server has dropped it meanwhile."""
        try:
            return ReportFacts.model_validate_json((self.place / FACTS).read_bytes()).kernels
        except (OSError, ValidationError):
            raise _unknown(self.identity) from None

    @property
    def raw(self) -> bytes:
        return (self.place / RAW).read_bytes()

    @property
    def log(self) -> str:
        """What ncu printed."""
        with contextlib.suppress(OSError):
            return (self.place / LOG).read_text(errors="replace")
        return ""


class Reports:
    """The store; several servers may share it."""

    def __init__(self, place: Path, cap_bytes: int | None = None) -> None:
        self._store = Store(place, cap_bytes if cap_bytes is not None else _cap())

    def add(self, raw: Path, kernels: list[KernelFacts], about: About, log: str = "") -> Entry:
        """Keep a report, or the part of one that `kernels` are; the same again is the same entry."""
        content = raw.read_bytes()
        which = json.dumps([kernel.ranges for kernel in kernels])
        identity = hashlib.sha256(content + which.encode()).hexdigest()[:12]
        texts = {
            FACTS: ReportFacts(reader="", kernels=kernels).model_dump_json(),
            ABOUT: about.model_dump_json(),
            LOG: log,
        }
        self._store.drop(identity)  # which another version may have written
        self._store.keep(identity, {RAW: content} | {name: text.encode() for name, text in texts.items()})
        return self.get(identity)

    def get(self, identity: str) -> Entry:
        """Raises Refusal UNKNOWN_REPORT."""
        place = self._store.find(identity) if is_id(identity) else None
        try:
            if place is None:
                raise FileNotFoundError(identity)
            return Entry(identity, place, About.model_validate_json((place / ABOUT).read_bytes()))
        except (OSError, ValidationError):
            raise _unknown(identity) from None


def _cap() -> int:
    given = os.environ.get(CAP_VARIABLE, "")
    return (int(given) if given.isdigit() else CAP_MIB) << 20


def _unknown(identity: str) -> Refusal:
    reason = f"no report {identity!r} here (the least used are dropped)"
    return Refusal(Code.UNKNOWN_REPORT, reason, "profile again, or read_report a file")


async def open_report(path: Path) -> tuple[ReportFacts, str | None]:
    """The facts of a report file, and the version of ncu that wrote it.

    Raises Refusal BAD_REPORT, READER_TOO_OLD or NO_READER.
    """
    writer = await asyncio.to_thread(_writer, path)
    chosen = _reader(_version(writer) if writer else None)
    if nvdisasm := toolkit.there_is("nvdisasm"):
        chosen += ["--nvdisasm", nvdisasm]
    ended = await Supervisor().run(
        [sys.executable, "-P", "-s", "-c", READ, json.dumps(sys.path), *chosen, str(path)], timeout_s=READ_TIMEOUT_S
    )
    try:
        answer = json.loads(ended.output)
        facts = ReportFacts.model_validate(answer)
    except (ValueError, ValidationError):
        raise Refusal(Code.BAD_REPORT, f"{path.name} is no report that can be read, or is damaged") from None
    if not facts.kernels:
        raise Refusal(Code.BAD_REPORT, f"{path.name} holds no kernel: it is cut short, or nothing was profiled")
    return facts, writer


def _writer(path: Path) -> str | None:
    """The version of ncu that a report says it was written by, wherever in the file it does."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            found = WRITER.search(text)
            return found[1].decode() if found else None
    except ValueError:  # an empty file cannot be mapped
        return None
    except OSError as fault:
        raise Refusal(Code.BAD_REPORT, f"{path} cannot be read: {fault.strerror}") from None


READ = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from ncu_server.profiler import report_reader
report_reader.main(sys.argv[2:])
"""


def _reader(writer: Version | None) -> list[str]:
    """The arguments that choose a reader as new as the writer, the installed package before any that came with ncu."""
    with contextlib.suppress(PackageNotFoundError):
        own = _version(version("ncu-report"))
        if writer is None or (own is not None and own >= writer):
            return []
        for folder, there in _installs():
            if there >= writer:
                return ["--reader", str(folder)]
        sentence = f"ncu {writer[0]}.{writer[1]} wrote the report, and the reader is version {version('ncu-report')}"
        raise Refusal(Code.READER_TOO_OLD, sentence, "pip install -U ncu-report")
    if found := next(iter(_installs()), None):
        return ["--reader", str(found[0])]
    raise Refusal(Code.NO_READER, "the package that reads reports is missing", "pip install ncu-report")


def _installs() -> list[tuple[Path, Version]]:
    """The readers that lie beside an Nsight Compute, newest first."""
    places = [path for pattern in INSTALLS for path in Path("/").glob(pattern.lstrip("/"))]
    found = [(place / "extras" / "python", at) for place in places if (at := _version(place.name))]
    return sorted((f for f in found if (f[0] / "ncu_report.py").exists()), key=lambda f: f[1], reverse=True)


def _version(text: str) -> Version | None:
    found = FOLDER.search(text)
    return (int(found[1]), int(found[2])) if found else None


async def keep(store: Reports, path: Path, about: About) -> Entry:
    """Open a report file and keep all of it."""
    facts, writer = await open_report(path)
    told = about.model_copy(update=_device(facts.kernels[0]) | {"writer": writer})
    return await asyncio.to_thread(store.add, path, facts.kernels, told)


def _device(kernel: KernelFacts) -> dict[str, str | None]:
    """Name and architecture of the device, as the report's attributes tell them."""
    name = kernel.metrics.get("device__attribute_display_name")
    major, minor = (kernel.metrics.get(f"device__attribute_compute_capability_{part}") for part in ("major", "minor"))
    arch = f"sm_{major:.0f}{minor:.0f}" if isinstance(major, float) and isinstance(minor, float) else None
    return {"device": str(name) if name else None, "arch": arch}
