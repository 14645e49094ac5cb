"""What a measuring server tells of its machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """A kind of device as the server sees it; `reason` and `fix` say why it is not available and what would help."""

    name: str
    available: bool
    device: str | None = None
    arch: str | None = None
    threads: int | None = None
    compiler: str | None = None
    reason: str | None = None
    fix: str | None = None


@dataclass(frozen=True, slots=True)
class Tool:
    """A program the server can use, or how to get it."""

    name: str
    path: str | None = None
    version: str | None = None
    fix: str | None = None


@dataclass(frozen=True, slots=True)
class Version:
    """A package on whose private parts the server leans; `note` says where its version is beyond those `tried`."""

    package: str
    version: str | None
    tried: str
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Wall:
    """One wall around a candidate's processes: whether it stands there, and how, or why not."""

    name: str
    stands: bool
    why: str
    targets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that the server writes to; `why` says what was passed over for it, or why it cannot be used."""

    name: str
    path: str
    usable: bool
    why: str | None = None
    fix: str | None = None


@dataclass(frozen=True, slots=True)
class Counters:
    """Whether the server's profiler may read the GPU's counters: allowed, denied, unknown."""

    state: str
    why: str
    fix: str | None = None


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU that the server sees, first the one that it measures on; `busy` says who else is at work on it."""

    index: int
    name: str
    uuid: str | None = None
    memory_bytes: float | None = None
    busy: str = ""


@dataclass(frozen=True, slots=True)
class Environment:
    """What the server's machine can do; `host` is its name."""

    server: str
    python: str
    torch: str
    targets: tuple[Target, ...]
    tools: tuple[Tool, ...]
    walls: tuple[Wall, ...] = ()
    places: tuple[Folder, ...] = ()
    versions: tuple[Version, ...] = ()
    counters: Counters | None = None
    host: str | None = None
    gpus: tuple[Gpu, ...] = ()

    @property
    def cards(self) -> dict[str, str]:
        """What judges there, by target."""
        return {target.name: target.device or "" for target in self.targets if target.available}
