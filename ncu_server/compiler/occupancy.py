"""How many warps an SM can hold, from what a kernel needs: the arithmetic of NVIDIA's occupancy calculator.

Checked against ncu's own numbers for a hundred launches on sm_75, sm_80, sm_86, sm_90, sm_100 and sm_120; the others
are from the CUDA programming guide's table of compute capabilities.
"""

from __future__ import annotations

from dataclasses import dataclass

REGISTERS, SCHEDULERS, REGISTER_UNIT, WARP = 65536, 4, 256, 32
COUNTED_SINCE = 90


@dataclass(frozen=True, slots=True)
class Sm:
    """What an SM of an architecture holds; `reserved` is shared memory of each block that the system takes."""

    warps: int
    blocks: int
    shared_bytes: int
    reserved: int = 1024
    shared_unit: int = 128


SMS = {
    "sm_75": Sm(32, 16, 64 << 10, 0, 256),
    "sm_80": Sm(64, 32, 164 << 10),
    "sm_86": Sm(48, 16, 100 << 10),
    "sm_87": Sm(48, 16, 164 << 10),
    "sm_89": Sm(48, 24, 100 << 10),
    "sm_90": Sm(64, 32, 228 << 10),
    "sm_100": Sm(64, 32, 228 << 10),
    "sm_103": Sm(64, 32, 228 << 10),
    "sm_120": Sm(48, 24, 100 << 10),
}


def possible_pct(arch: str, registers: int, threads: int, shared_bytes: int) -> float | None:
    """Percent of an SM's warps that can be resident, for blocks of `threads`; None for an unknown architecture.

    0 where not even one block fits.
    """
    sm = SMS.get(arch.rstrip("af"))
    if sm is None or threads < 1:
        return None
    warps = -(-threads // WARP)
    a_warp = -(-registers * WARP // REGISTER_UNIT) * REGISTER_UNIT
    by_registers = REGISTERS // SCHEDULERS // a_warp * SCHEDULERS // warps if a_warp else sm.blocks
    taken = -(-(shared_bytes + sm.reserved) // sm.shared_unit) * sm.shared_unit
    by_shared = sm.shared_bytes // taken if taken else sm.blocks
    return 100 * min(by_registers, by_shared, sm.warps // warps, sm.blocks) * warps / sm.warps


def own_shared(arch: str, counted: int) -> int:
    """Bytes of a block's shared memory that are its own; from sm_90 on, binaries count the system's share as well."""
    digits = arch.removeprefix("sm_").rstrip("af")
    sm = SMS.get(arch.rstrip("af"))
    return max(0, counted - sm.reserved) if sm and int(digits) >= COUNTED_SINCE else counted
