"""How a convolution is tiled: the copy of its input, the boxes of a tile, and what of both shared memory holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.templates.convolution import ConvolutionShape
from kernel_agent.proposers.templates.taps import Places, TapList

BOX = 64  # places of a box, which wgmma multiplies at once
SQUARE, ROW = 8, BOX  # places of its rows, by its form
LINE = 8  # places of a row where there is one dimension
REACH = 256  # elements of a side of what TMA brings, of 8 bytes here
WORTH = 1.3  # what may be computed in vain for rows, whose results are stored 64 neighbours at a time; not measured
ROOM = {
    1: 225 << 10,
    2: 111 << 10,
    3: 73 << 10,
}  # bytes of shared memory of a block's ring, by how many share a multiprocessor
TURNS = 2  # phases of a row at most that a tile makes
SUMS = {3: 32, 2: 64, 1: 128}  # of a thread at most, by how many blocks share a multiprocessor
W_ROOM = 16 << 10  # bytes of a stage of weights
W_STAGES, STAGES = 3, 3
UNIT = 16  # bytes of a place's channels that lie together
CONSUMERS = 2  # warpgroups
BYTES = {"bf16": 2, "fp16": 2, "tf32": 4}  # of an element, by arithmetic
TILES = ("256x64", "128x128", "256x128", "128x256", "128x64")  # places, and channels at most
PIECE = 256  # threads of a block that copies
BLOCKS = 2**31  # of a launch, at most
AT_ONCE = 1 << 16  # blocks that run together, at most


@dataclass(frozen=True)
class ConvolutionTile:
    """A tile of `sides` boxes of 64 places (`wide` in a row) and `channels` channels, of a convolution whose elements
    have so many bytes. A stage of the ring holds `together` units of each place of a tile's box."""

    of: ConvolutionShape
    size: int
    sides: Places
    channels: int
    wide: int = SQUARE

    @property
    def tall(self) -> int:
        """Rows of a box."""
        return BOX // self.wide

    @property
    def turns(self) -> int:
        """Phases of a row that a tile makes: all, so that what they interleave is stored at once, or one."""
        stride = self.of.schedule.windows[2].stride
        return stride if self.of.schedule.turned and stride <= TURNS else 1

    @cached_property
    def line(self) -> bool:
        """Whether there is one dimension, whose places lie in rows of eight."""
        around = zip(self.of.given[1][:2], self.of.made[1][:2], self.of.schedule.windows[:2], strict=True)
        return all(given == made == window.taps == window.stride == 1 for given, made, window in around)

    @property
    def unit(self) -> int:
        """Channels of a unit."""
        return UNIT // self.size

    @property
    def units(self) -> int:
        """Units of a place; more than one are of an even number, as a step multiplies two."""
        units = -(-self.of.given[0] // self.unit)
        return units if units == 1 else -(-units // 2) * 2

    @cached_property
    def box(self) -> Places:
        """Places of a box with its halo; its last side is the pitch of its rows."""
        depth, height, width = self.sides
        below, beside, right = self.of.schedule.halo
        if self.line:
            return 1, height * LINE + -(-right // LINE), LINE
        return depth + below, height * self.tall + beside, width * self.wide + right

    @property
    def stage(self) -> int:
        """Bytes of a stage of boxes."""
        return -(-self.together * prod(self.box) * UNIT // 128) * 128

    @cached_property
    def together(self) -> int:
        """Units of a stage: as many as leave room for the others, or half as many so that the first come early."""
        if self.units == 1:
            return 1
        fitting = [
            n for n in range(2, min(self.units, 8) + 1, 2) if self.units % n == 0 and self._stages(n) >= min(2, STAGES)
        ]
        early = [n for n in fitting if n <= 4]
        return max(early or fitting or [2])

    def _stages(self, together: int) -> int:
        weights = W_STAGES * max(W_ROOM, self.channels * 32)
        return (ROOM[self.resident] - self.held - weights) // max(together * prod(self.box) * UNIT, 1)

    @property
    def stages(self) -> int:
        """Stages of boxes. Raises NotCovered where one doesn't fit."""
        stages = (ROOM[self.resident] - self.held - W_STAGES * self.joint * self.channels * 32) // self.stage
        if stages < 1:
            raise NotCovered("shared memory has no room for a box with so large a halo.")
        return min(STAGES, stages)

    @property
    def resident(self) -> int:
        """Blocks of a multiprocessor."""
        return next((blocks for blocks, most in SUMS.items() if self.sums <= most), 1)

    @property
    def held(self) -> int:
        """Bytes of the sums that a block stores at once: those of so many channels, 64 places and some room."""
        channels = next(n for n in (32, 16, 8) if self.channels % n == 0 and (n * self.turns <= 32 or n == 8))
        return CONSUMERS * channels * (BOX * self.turns + 4) * 4

    @property
    def sums(self) -> int:
        """Of a thread."""
        return prod(self.sides) // CONSUMERS * self.channels // 2 * self.turns

    @cached_property
    def steps(self) -> tuple[tuple[int, ...], ...]:
        """Of each list the steps of a chunk: where the first unit of a step begins in a box, and from there to the
        second, << 16; in units. The last is repeated, with weights of zero, where stages of weights need more."""
        padded = (-len(steps) % self.joint for steps in self._bare)
        return tuple((*steps, *steps[-1:] * more) for steps, more in zip(self._bare, padded, strict=True))

    @cached_property
    def _bare(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(self._steps(one)) for one in self.of.schedule.lists)

    def _steps(self, taps: TapList) -> Iterator[int]:
        plane, at = prod(self.box), [self._within(place) for _, place in taps.taps]
        if self.together == 1:
            for first, second in zip(at[::2], [*at[1::2], *([at[-1]] * (len(at) % 2))], strict=True):
                yield first | (second - first) << 16
        else:
            yield from (tap + unit * plane | plane << 16 for tap in at for unit in range(0, self.together, 2))

    def _within(self, place: Places) -> int:
        """Where a place that a tap reads for the first of a tile lies in the tile's box."""
        depth, height, width = (here - first for here, first in zip(place, self.of.schedule.origin, strict=True))
        return width if self.line else (depth * self.box[1] + height) * self.box[2] + width

    @cached_property
    def joint(self) -> int:
        """Steps of a stage of weights: as many as leave few to repeat, where the wait for a stage costs one step."""
        most = max(1, W_ROOM // (self.channels * 32))

        def cost(joint: int) -> tuple[int, int]:
            stages = sum(-(-len(steps) // joint) for steps in self._bare)
            return stages * (joint + 1), stages * joint

        return min(range(most, 0, -1), key=cost)

    @cached_property
    def copied(self) -> Places:
        """Places of a group in the copy of the input."""
        sizes, windows = self.of.given[1], self.of.schedule.windows
        strides = [1 if self.of.schedule.turned else window.stride for window in windows]
        depth, height, width = (-(-size // stride) for size, stride in zip(sizes, strides, strict=True))
        left = -self.of.schedule.origin[2] % LINE
        return (depth, height, -(-(width + left) // LINE) * LINE) if self.line else (depth, height, width)

    @property
    def planes(self) -> int:
        """Planes of units in the copy of the input."""
        return self.of.images * len(self.of.schedule.groups) * self.units

    @property
    def tiles_n(self) -> int:
        """Tiles of channels."""
        return -(-self.of.made[0] // self.channels)

    @property
    def rows(self) -> int:
        """Units in the copy of the weights."""
        return self.tiles_n * sum(map(len, self.steps)) * (self.units // self.together) * 2 * self.channels

    @property
    def scratch(self) -> int:
        """Floats of both copies."""
        return (self.planes * prod(self.copied) + self.rows) * UNIT // 4

    @cached_property
    def boxes(self) -> int:
        """Tiles of places of one phase of an image."""
        turned, windows = self.of.schedule.turned, self.of.schedule.windows
        apart = [window.stride if turned else 1 for window in windows]
        depth, height, width = (-(-size // step) for size, step in zip(self.of.made[1], apart, strict=True))
        if self.line:
            depth, height, width = 1, -(-width // LINE), LINE
        sides = self.sides[0], self.sides[1] * self.tall, self.sides[2] * self.wide
        return prod(-(-size // side) for size, side in zip((depth, height, width), sides, strict=True))

    @property
    def multiplied(self) -> float:
        """Operations of whole tiles and steps."""
        steps = sum(map(len, self.steps)) * (self.units // self.together)
        places = self.of.images * self.boxes * prod(self.sides) * BOX
        return 2.0 * places * self.tiles_n * self.channels * steps * 2 * self.unit

    @property
    def fed(self) -> float:
        """Of the tensor cores' rate what shared memory feeds, 128 bytes a cycle: 64 places by n channels take n / 2
        cycles a step and read 64 + n rows of 32 bytes; what the stages bring is written too."""
        steps, boxes = sum(map(len, self.steps)) * (self.units // self.together), prod(self.sides)
        read = steps * boxes * (64 + self.channels) * 32
        written = steps * self.channels * 32 + len(self.of.schedule.lists) * self.units * prod(self.box) * UNIT
        multiplied = steps * boxes * self.channels / 2
        return multiplied / max(multiplied, (read + written) / 128)

    @property
    def brought(self) -> int:
        """Units that stages bring from the L2 cache, of the input and of weights."""
        tiles = self.of.images * self.boxes
        return tiles * (self.tiles_n * len(self.of.schedule.lists) * self.units * prod(self.box) + self.rows)


def tiled(of: ConvolutionShape, genes: Mapping[str, object]) -> ConvolutionTile:
    """The tile that the genes name, such as 256x64. Raises NotCovered where no box of the input reaches as far as the
    taps, and where a launch has no room for its blocks."""
    places, channels = map(int, str(genes["tile"]).split("x"))
    tile = _tile_of(of, BYTES[str(genes["arithmetic"])], places, channels)
    copies = tile.planes * -(-prod(tile.copied) // PIECE)
    sizes = prod(of.given[1]), prod(tile.copied), of.points
    tiles = of.images * tile.boxes * tile.tiles_n * len(of.schedule.phases)
    if max(copies, tile.rows, tiles + AT_ONCE, *sizes) >= BLOCKS:
        raise NotCovered("this convolution takes more blocks than a launch has.")
    return tile


@lru_cache(maxsize=1 << 10)
def ranked(of: ConvolutionShape, arithmetic: str) -> dict[str, ConvolutionTile]:
    """The tiles that differ and fit, the most promising first. Raises NotCovered where there is none."""
    found, keys = dict[str, ConvolutionTile](), set[object]()
    for name in TILES:
        try:
            tile = tiled(of, {"arithmetic": arithmetic, "tile": name})
            key = tile.sides, tile.channels, tile.stages
        except NotCovered:
            continue
        if key not in keys:
            keys.add(key)
            found[name] = tile
    if not found:
        raise NotCovered("no template covers a convolution whose taps lie so far apart.")
    return dict(sorted(found.items(), key=lambda item: _cost(item[1])))


def _cost(tile: ConvolutionTile) -> tuple[bool, float, int]:
    """Whether no other block works while one stores, then what is multiplied in vain, and what stages bring."""
    return tile.resident < 2, round(tile.multiplied / tile.of.operations / tile.fed, 1), tile.brought


def _tile_of(of: ConvolutionShape, size: int, places: int, channels: int) -> ConvolutionTile:
    """The tile of so many places, and of so many channels at most, that computes least in vain.

    Raises NotCovered where no box of the input reaches as far as the taps.
    """
    parts = -(-of.made[0] // channels)
    width = -(-of.made[0] // (8 * parts)) * 8
    boxes = places // BOX
    sides = [(d, h, boxes // d // h) for d in (1, 2, 4) for h in (1, 2, 4) if boxes % (d * h) == 0]
    tiles = [ConvolutionTile(of, size, side, width, wide) for side in sides for wide in (SQUARE, ROW)]
    fitting = [tile for tile in tiles if _fits(tile)]
    if not fitting:
        raise NotCovered("no template covers a convolution whose taps lie so far apart.")
    return min(fitting, key=_waste)


def _fits(tile: ConvolutionTile) -> bool:
    """Whether TMA brings its boxes, and a stage of them has room."""
    depth, height, width = tile.box
    if tile.line and (tile.sides[0] > 1 or tile.sides[2] > 1 or tile.wide != LINE):
        return False
    small = max(width * UNIT // 8, height, depth) <= REACH and tile.sums <= max(SUMS.values())
    held = min(tile.units, 2) * prod(tile.box) * UNIT + W_STAGES * tile.channels * 32 + tile.held
    return small and held <= ROOM[tile.resident]


def _waste(tile: ConvolutionTile) -> tuple[float, int]:
    """What is computed, with a sixteenth of what is read beside it; less of rows than of squares."""
    places = prod(tile.sides) * BOX
    worth = WORTH if tile.wide == ROW else 1.0
    return tile.boxes * (places + prod(tile.box) / 16) / worth, prod(tile.box)
