"""What was tried of a delivered file by itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModuleCheck:
    """One thing that was tried of a delivered file by itself; `ok` is None where it could not be tried here."""

    name: str
    ok: bool | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Delivery:
    """What was tried of a delivered file alone, in an empty folder and a fresh process; `bind` is what binds its kernel
    (`tvm_ffi` or `torch`)."""

    bind: str
    checks: tuple[ModuleCheck, ...]

    @property
    def works(self) -> bool:
        """Whether the file builds and agrees with the original."""
        return {check.name for check in self.checks if check.ok} >= {"builds", "agrees"}

    @property
    def why_not(self) -> str:
        """The first thing that failed, with the reason; empty where nothing did."""
        failed = (f"{check.name}: {check.why}" for check in self.checks if check.ok is False)
        return next(failed, "")
