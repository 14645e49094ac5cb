"""What can be varied in a product's kernel."""

from __future__ import annotations

from kernel_agent.proposers.templates.arithmetic import BY_NAME
from kernel_agent.proposers.templates.emit_product import BLOCKS, DEPTH, TILES, blocks
from kernel_agent.proposers.templates.genes import Genes, Space, starting, strategy
from kernel_agent.proposers.templates.product import Product
from kernel_agent.run.types import Device

PROCESSORS = 132  # multiprocessors that a large device has: what fills them fills a smaller one
SHARED = {80: 163 << 10, 87: 163 << 10, 90: 227 << 10, 100: 227 << 10, 103: 227 << 10}  # bytes of a block, by sm
LEAST = 99 << 10  # of all others from sm_86 on
SHORTEST = 8  # tiles of terms that a part of a sum has at least
MOST = 64  # parts of a sum


def product_space(product: Product, device: Device) -> Space:
    """Genes of a product in CUDA C++: arithmetic, tile, stages, parts of a sum, order of blocks."""
    tiles = _tiles(product)
    parts = _parts(product, tiles[0])
    stages = [n for n in (4, 3, 5) if n * max(map(_stage, tiles)) <= _shared(device)] or [2]
    genes = [
        strategy("arithmetic", [(name, BY_NAME[name].phrase, BY_NAME[name].why) for name in product.arithmetics]),
        strategy("tile", [(tile, f"tiles of {tile.replace('x', ' x ')}", _why(tile)) for tile in tiles]),
        strategy(
            "stages",
            [(n, f"{n} stages", f"{n - 1} tiles are on their way while one is multiplied.") for n in stages],
        ),
        strategy(
            "split",
            [
                (
                    n,
                    f"sums in {n} parts" if n > 1 else "",
                    "Parts of a sum, added in order, give every multiprocessor work.",
                )
                for n in parts
            ],
        ),
        strategy(
            "group",
            [
                (8, "", "Blocks that run together share rows and columns in the L2 cache."),
                (1, "blocks by rows", "Blocks in order of rows read one operand's rows once."),
                (32, "tall groups of blocks", "Tall groups of blocks keep many rows of one operand in the L2 cache."),
            ],
        ),
    ]
    last = {g.name: g.values[-1] for g in genes}
    departures: list[Genes] = [
        {"tile": tiles[1 % len(tiles)]},
        {"stages": stages[1 % len(stages)]},
        {"arithmetic": last["arithmetic"]},
        {"split": last["split"]},
        {"tile": tiles[2 % len(tiles)], "group": 1},
        {"group": 32},
    ]
    return starting(genes, departures)


def _tiles(product: Product) -> list[str]:
    """The tiles worth trying, the most promising first: by how much they compute in vain, and then the largest."""

    def cost(tile: str) -> tuple[float, int]:
        rows, columns = TILES[tile][:2]
        waste = (
            -(-product.rows // rows) * rows / product.rows * -(-product.columns // columns) * columns / product.columns
        )
        idle = PROCESSORS / min(PROCESSORS, blocks(product, tile) * _parts(product, tile)[0])
        traffic = 1 + 16 / rows + 16 / columns
        return round(waste * idle * traffic, 2), -rows * columns

    possible = [tile for tile in TILES if blocks(product, tile) < BLOCKS]
    return sorted(possible, key=cost)[:4]


def _parts(product: Product, tile: str) -> list[int]:
    """Into how many parts a sum is cut: as many as fill the device twice, one, and twice as many."""
    longest = max(1, min(MOST, -(-product.depth // DEPTH) // SHORTEST))
    best = (
        max(1, min(longest, -(-2 * PROCESSORS // blocks(product, tile)))) if blocks(product, tile) < PROCESSORS else 1
    )
    return list(dict.fromkeys([best, 1, min(longest, 2 * best)]))


def _why(tile: str) -> str:
    rows, columns = TILES[tile][:2]
    return f"A tile of {rows} x {columns} reads {(rows + columns) * 4 / rows / columns:.3g} bytes a product's term."


def _stage(tile: str) -> int:
    return (TILES[tile][0] + TILES[tile][1]) * DEPTH * 4


def _shared(device: Device) -> int:
    digits = device.arch.removeprefix("sm_").rstrip("af")
    return SHARED.get(int(digits), LEAST) if digits.isdigit() else LEAST
