"""How an attention is tiled: queries and keys of a tile, stages of keys and values, and what both take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.templates.attention import Attention, AttentionShape
from kernel_agent.proposers.templates.processors import PROCESSORS

TILES = ("128x64", "128x128", "192x64", "192x128")  # queries, and keys
ROOM = 224 << 10  # bytes of shared memory of a block, some left for barriers and units
REGISTERS = {2: 232, 3: 160}  # of a thread, by warpgroups of 64 queries
BESIDE = 34  # of these for all but scores, weights and sums
STAGES = 3  # at most
LINE = 128  # bytes of a row in shared memory
MORE = {2: 1.0, 3: 0.9}  # time of a query by warpgroups that take turns at the tensor cores; not measured
LONGER = {64: 1.0, 128: 0.95}  # the same by keys of a tile, whose maxima and scales are found once; not measured
PARTS = {"fp16x3": 2, "fp16": 1}  # of an operand, by arithmetic
PIECE = 64  # queries or keys of the smallest tile, and numbers of a row in shared memory
BLOCKS = 2**31  # of a launch, at most


@dataclass(frozen=True)
class AttentionTile:
    """A tile of `queries` and `keys` of an attention whose operands have so many parts of two bytes."""

    of: AttentionShape
    parts: int
    queries: int
    keys: int

    @property
    def groups(self) -> int:
        """Warpgroups, each of 64 queries."""
        return self.queries // 64

    @property
    def chunks(self) -> int:
        """Rows of 128 bytes of a query or key."""
        return -(-self.of.terms // PIECE)

    @property
    def columns(self) -> int:
        """Terms of a value, as the tensor cores take them."""
        return -(-self.of.values // 8) * 8

    @property
    def registers(self) -> int:
        """Of a thread: scores that become weights in parts, sums of values, and those of one tile."""
        scores = self.keys // 2
        return BESIDE + max(scores, self.parts * self.keys // 4) + self.columns

    @property
    def stages(self) -> int:
        """Stages of keys and values that fit."""
        stage = self.parts * LINE * (self.keys * self.chunks + self.keys // 64 * self.columns)
        return min(STAGES, (ROOM - self.parts * self.queries * self.chunks * LINE) // stage)

    @property
    def fits(self) -> bool:
        """Whether registers and shared memory hold it."""
        return self.registers <= REGISTERS[self.groups] and self.stages >= 2

    @property
    def blocks(self) -> int:
        """Of the launch that attends."""
        return self.of.heads * -(-self.of.queries // self.queries)

    @property
    def cost(self) -> tuple[float, int]:
        """What is computed in vain or waited for, and how many keys a tile has."""
        rows = -(-self.of.queries // self.queries) * self.queries / self.of.queries
        columns = -(-self.of.keys // self.keys) * self.keys / self.of.keys
        idle = -(-self.blocks // PROCESSORS) * PROCESSORS / self.blocks
        return round(rows * columns * idle * MORE[self.groups] * LONGER[self.keys], 2), self.keys

    @property
    def scratch(self) -> int:
        """Floats of the parts of keys and values, the units of tiles, two marks for each head, and kinds of the mask's
        tiles."""
        terms, keys = -(-self.of.terms // 8) * 8, -(-self.of.keys // 8) * 8
        halves = self.parts * self.of.heads * (self.of.keys * terms + self.of.values * keys)
        tiles = -(-self.of.keys // self.keys)
        kinds = -(-self.of.queries // self.queries) * self.groups * tiles
        return halves // 2 + 2 * self.of.heads * (tiles + 1) + -(-kinds // 4)


def ranked(of: AttentionShape, arithmetic: str) -> dict[str, AttentionTile]:
    """The tiles that fit, the most promising first. Raises NotCovered where there is none."""
    found = {}
    for name in TILES:
        queries, keys = map(int, name.split("x"))
        tile = AttentionTile(of, PARTS[arithmetic], queries, keys)
        if tile.fits:
            found[name] = tile
    blocks = 2 * of.heads * -(-of.keys // PIECE) + of.queries * of.keys // PIECE + of.heads * of.queries // PIECE
    if not found or blocks >= BLOCKS:
        raise NotCovered("no template covers an attention of these sizes.")
    return dict(sorted(found.items(), key=lambda item: item[1].cost))


def tiled(of: Attention, genes: Mapping[str, object]) -> AttentionTile:
    """The tile that the genes name, such as 128x64."""
    queries, keys = map(int, str(genes["tile"]).split("x"))
    return AttentionTile(of.shape, PARTS[str(genes["arithmetic"])], queries, keys)
