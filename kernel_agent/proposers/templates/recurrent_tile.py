"""How a recurrent network is shared out: units of a block, rows and columns of its threads, layers at once; and how
long that takes, as predicted. Nothing of this was measured on a card but what the library takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.templates.processors import PROCESSORS, shared_bytes
from kernel_agent.proposers.templates.recurrent import RecurrentShape
from kernel_agent.run.types import Device

WARPS, LOADERS = 8, 4  # that compute, and that bring states
LANES = (8, 16, 32)  # rows that a warp's lanes share out
MOST_ROWS = 6  # of a thread
REGISTERS = 112  # of a thread for weights and sums: a block of twelve warps has 168
SUMS = 25  # of a thread at once
FEWER = 84  # multiprocessors, where the server does not say and the device is not Hopper's
MHZ = 1700.0
SWAP = 1100  # clocks until a state that one block wrote is in another's shared memory, where that waits for it
FILLED = 0.8  # of the clocks of a product in which its warps multiply
CHAINED = 500  # clocks of a step for the gates' functions, the store and two barriers
LAUNCH_US = 8.0  # of the fill, of a cooperative launch and of loading the weights
LIBRARY_STEP_US = 6.0
"""Of one step of one layer: half of what an H200 took (3/35 12.7 us, 3/40 20 us, in kernelbench-sizes-h200.md)."""
HISTORY = 1 << 28  # floats of all states at most
ROUNDS = 4  # of states of a block, four lanes to each


@dataclass(frozen=True)
class RecurrentTile:
    """`units` of a block, `wave` layers at once; `lanes` of a warp have a row each, `rows` times."""

    of: RecurrentShape
    units: int
    wave: int
    lanes: int
    rows: int

    @property
    def name(self) -> str:
        """What tells it from others of the same network."""
        return f"{self.units}-{self.wave}-{self.lanes}-{self.rows}"

    @property
    def blocks(self) -> int:
        """All of them are resident."""
        return self.wave * self.of.directions * -(-self.of.width // self.units)

    @property
    def slices(self) -> int:
        """Into how many the columns are cut."""
        return WARPS * 32 // self.lanes

    @property
    def chunks(self) -> tuple[int, int]:
        """Units of four columns that a thread has of the input and of the state."""
        below = self.of.directions * self.of.width if self.of.layers > 1 else 0
        given = max(-(-self.of.given // 4) * 4, below)
        return -(-given // 4 // self.slices), -(-self.of.width // 4 // self.slices)

    @property
    def together(self) -> int:
        """Rows of the batch that a thread sums at once."""
        passes = -(-self.of.batch * self.rows // SUMS)
        return -(-self.of.batch // passes)

    @property
    def batches(self) -> int:
        """Rows of the batch, with those that fill the last pass."""
        return -(-self.of.batch // self.together) * self.together

    @property
    def registers(self) -> int:
        """Those of a thread's weights and sums."""
        return 4 * self.rows * sum(self.chunks) + self.rows * self.together

    @property
    def rounds(self) -> int:
        """States that each four lanes have."""
        return -(-self.units * self.of.batch // (WARPS * 8))

    @property
    def shared(self) -> int:
        """Bytes of shared memory."""
        rows = self.lanes * self.rows
        part = self.batches * rows
        part += (self.lanes - part % 32) % 32
        pitches = sum(self.chunks) * self.slices * 4
        return 4 * (self.batches * pitches + 2 * self.slices * part + 2 * rows)

    def fits(self, sms: int, shared: int) -> bool:
        """Whether all blocks are resident, each with an SM of its own, and a thread's weights in registers."""
        return (
            self.of.gates * self.units <= self.lanes * self.rows
            and self.blocks <= sms
            and self.registers <= REGISTERS
            and self.rounds <= ROUNDS
            and self.shared <= shared
        )

    @property
    def clocks(self) -> float:
        """Of a step of a layer: both products, the sums over slices, and the gates' functions, one after the other."""
        given, state = (self._product(chunks) for chunks in self.chunks)
        gathered = 2 * self.rounds * self.slices * WARPS
        return max(given, SWAP) + state + gathered + CHAINED

    def _product(self, chunks: int) -> float:
        """Clocks of a product: four warps multiply at once, and shared memory gives one warp 16 bytes in two."""
        batches = self.batches
        multiplied = chunks * 4 * self.rows * batches * WARPS / 4
        read = chunks * batches * WARPS * 2
        return max(multiplied, read) / FILLED + self.rows * batches * WARPS

    @property
    def steps(self) -> int:
        """Those that follow each other: a wave's layers start two steps apart."""
        of = self.of
        if of.directions == 2:
            return of.layers * of.steps
        return -(-of.layers // self.wave) * (of.steps + 2 * (self.wave - 1))

    def us(self, device: Device) -> float:
        """Microseconds, as predicted."""
        filled = 4 * self.of.history / (device.copy_gbps or 1e3) / 1e3
        return LAUNCH_US + filled + self.steps * self.clocks / (device.chip.tensor_mhz or MHZ)


def library_us(of: RecurrentShape) -> float:
    """Microseconds of the library's, which computes a step of a layer after the other."""
    return LIBRARY_STEP_US * of.layers * of.steps


@lru_cache
def _ranked(of: RecurrentShape, sms: int, shared: int) -> Mapping[str, RecurrentTile]:
    best: dict[tuple[int, int], RecurrentTile] = {}
    for tile in _every(of):
        if tile.fits(sms, shared):
            key = tile.units, tile.wave
            other = best.get(key)
            best[key] = tile if other is None or tile.clocks < other.clocks else other
    order = sorted(best.values(), key=lambda tile: (tile.steps * tile.clocks, tile.blocks))
    return {tile.name: tile for tile in order}


def ranked(of: RecurrentShape, device: Device) -> Mapping[str, RecurrentTile]:
    """The tiles that fit a device by name, the one first that is predicted to take least.

    Raises NotCovered where there is none.
    """
    if of.history > HISTORY:
        raise NotCovered("the states of all steps of this recurrent network take too much memory.")
    supposed = PROCESSORS if device.arch.startswith("sm_90") else FEWER
    found = _ranked(of, device.chip.sms or supposed, shared_bytes(device))
    if not found:
        raise NotCovered("the device's registers and shared memory do not hold this network's weights and batch.")
    return found


def tiled(of: RecurrentShape, name: str) -> RecurrentTile:
    """The tile of a name."""
    return RecurrentTile(of, *map(int, name.split("-")))


def _every(of: RecurrentShape) -> Iterator[RecurrentTile]:
    waves = range(1, of.layers + 1) if of.directions == 1 else (1,)
    for units in range(1, min(of.width, MOST_ROWS * 32 // of.gates) + 1):
        for lanes in LANES:
            rows = -(-of.gates * units // lanes)
            if rows <= MOST_ROWS:
                yield from (RecurrentTile(of, units, wave, lanes, rows) for wave in waves)
