"""Refusals: what the server cannot do, and what the caller should do about it. A wrong kernel is never one of these."""

from __future__ import annotations

from enum import StrEnum


class Code(StrEnum):
    """Why a tool refused; the first word of the refusal's text on the wire."""

    BAD_PROBLEM = "BAD_PROBLEM"
    BAD_ARGUMENT = "BAD_ARGUMENT"
    UNKNOWN_TARGET = "UNKNOWN_TARGET"
    NO_DEVICE = "NO_DEVICE"
    NO_COMPILER = "NO_COMPILER"
    UNSUPPORTED_VERSION = "UNSUPPORTED_VERSION"
    NO_ROOM = "NO_ROOM"
    NO_PROFILER = "NO_PROFILER"
    NCU_FAILED = "NCU_FAILED"
    COUNTERS_DENIED = "COUNTERS_DENIED"
    COUNTERS_BUSY = "COUNTERS_BUSY"
    LOCKED = "LOCKED"
    NO_KERNEL_MATCH = "NO_KERNEL_MATCH"
    TOOK_TOO_LONG = "TOOK_TOO_LONG"
    UNKNOWN_REPORT = "UNKNOWN_REPORT"
    BAD_REPORT = "BAD_REPORT"
    READER_TOO_OLD = "READER_TOO_OLD"
    NO_READER = "NO_READER"
    NO_SANITIZER = "NO_SANITIZER"
    SANITIZER_FAILED = "SANITIZER_FAILED"
    UNKNOWN_BUILD = "UNKNOWN_BUILD"
    INTERNAL = "INTERNAL"


class Refusal(Exception):  # noqa: N818
    """A code, a reason, and where there is one a fix: what the caller can do about it. The MCP shell turns it into a
    tool error, `CODE: reason; fix`."""

    def __init__(self, code: Code, reason: str, fix: str = "") -> None:
        self.code, self.reason, self.fix = code, reason, fix
        super().__init__(f"{code}: {self.sentence}")

    @property
    def sentence(self) -> str:
        """Without the code."""
        return f"{self.reason}; {self.fix}" if self.fix else self.reason
