"""One file a target; this is their table."""

from ncu_server.targets import cpu, cuda, triton
from ncu_server.targets.target import Probe, Target

TARGETS: dict[str, Target] = {t.name: t for t in (cpu.TARGET, cuda.TARGET, triton.TARGET)}

__all__ = ["TARGETS", "Probe", "Target"]
