"""What can be varied in a product's kernel."""

from __future__ import annotations

from kernel_agent.proposers.templates.arithmetic import BY_NAME, DEEP, rate
from kernel_agent.proposers.templates.emit_product import BLOCKS, CUT, DEPTH, DIGITS, TILES, UNFOLDED, blocks, cut_bytes
from kernel_agent.proposers.templates.genes import Genes, Space, starting, strategy
from kernel_agent.proposers.templates.processors import PROCESSORS, shared_bytes
from kernel_agent.proposers.templates.product import Product
from kernel_agent.run.types import Device

SHORTEST = 8  # tiles of terms that a part of a sum has at least
MOST = 64  # parts of a sum
FASTER = {128: 0.24, 256: 0.22}  # of the time that mma.sync takes, by wgmma in tiles of so many columns (an H200)
CUTTING = 17.5  # rows whose products by mma.sync take as long as one row's bytes a term: 147 TFLOP/s, 3.2 TB/s


def product_space(product: Product, device: Device) -> Space:
    """Genes of a product in CUDA C++: arithmetic, tile, stages, parts of a sum, order of blocks."""
    tiles = _tiles(product, device)
    parts = _parts(product, tiles[0])
    most = max((_stage(tile) for tile in tiles if not _cuts(tile)), default=1)
    stages = [n for n in (4, 3, 5) if n * most <= shared_bytes(device)] or [2]
    genes = [
        strategy("arithmetic", [(name, BY_NAME[name].phrase, BY_NAME[name].why) for name in product.arithmetics]),
        strategy("tile", [(tile, _phrase(tile), _why(tile)) for tile in tiles]),
        strategy(
            "stages",
            [(n, f"up to {n} stages", f"{n - 1} tiles are on their way while one is multiplied.") for n in stages],
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
    return starting(genes, _departures(product, device, tiles, parts, stages))


def _departures(product: Product, device: Device, tiles: list[str], parts: list[int], stages: list[int]) -> list[Genes]:
    """What is tried after the first choices: what is as safe, then the fastest arithmetic, which may not be exact
    enough, then digits, and then what is slower as predicted."""
    first, *others = product.arithmetics
    faster = [name for name in others if rate(name, device) > rate(first, device)]
    faster.sort(key=lambda name: -rate(name, device))
    bold = list(dict.fromkeys([*faster[:1], *(name for name in faster if name == DIGITS)]))
    beside = [tile for tile in tiles[1:] if _cuts(tile) == _cuts(tiles[0])]
    few = blocks(product, tiles[0]) < 2 * PROCESSORS
    second: Genes = {"tile": beside[0]} if beside else {"group": 32}
    shares: list[Genes] = [{"split": parts[1]}] if few and parts[1:] else []
    ring: list[Genes] = [] if _cuts(tiles[0]) else [{"stages": stages[1 % len(stages)]}]
    slower: list[Genes] = [{"tile": tile} for tile in tiles[1:3] if tile not in beside[:1]]
    slower += [_departure(name, tiles) for name in others if name not in bold]
    return [second, *(_departure(name, tiles) for name in bold), *shares, {"group": 32}, {"group": 1}, *ring, *slower]


def _departure(arithmetic: str, tiles: list[str]) -> Genes:
    """Another arithmetic, in a tile that it has, and that leaves it registers."""
    if arithmetic == DIGITS:
        return {"arithmetic": arithmetic, "tile": CUT}
    folds = arithmetic.endswith("x3") and tiles[0] == UNFOLDED
    return {"arithmetic": arithmetic, **({"tile": tiles[1]} if folds else {})}


def _tiles(product: Product, device: Device) -> list[str]:
    """The tiles worth trying, the most promising first: by what is computed in vain, idle, or read."""
    first = product.arithmetics[0]
    cutting = CUTTING * (4 + 2 * cut_bytes(first)) / BY_NAME[first].products  # a term is read, and its parts both ways

    def cost(tile: str) -> tuple[float, int]:
        rows, columns = TILES[tile][:2]
        padded = -(-product.rows // rows) * rows * -(-product.columns // columns) * columns
        waste = padded / product.rows / product.columns
        count = blocks(product, tile) * _parts(product, tile)[0]
        if _cuts(tile):
            idle = -(-count // PROCESSORS) * PROCESSORS / count  # one block at a time on each
            each = FASTER[columns] + cutting * (1 / product.rows + 1 / product.columns)
        else:
            idle = PROCESSORS / min(PROCESSORS, count)
            each = 1 + 16 / rows + 16 / columns
        return round(waste * idle * each, 2), -rows * columns

    cuts = device.arch == "sm_90" and device.build_arch == "9.0a" and product.depth >= DEEP
    narrow = not first.endswith("x3")
    known = [CUT] if first == DIGITS else TILES
    possible = [tile for tile in known if blocks(product, tile) < BLOCKS and (cuts or not _cuts(tile))]
    ranked = sorted((tile for tile in possible if narrow or tile != UNFOLDED), key=cost)
    others = [tile for tile in ranked if not _cuts(tile)][:3]
    return [tile for tile in ranked if tile in others or _cuts(tile)]


def _cuts(tile: str) -> bool:
    return tile.startswith(CUT)


def _parts(product: Product, tile: str) -> list[int]:
    """Into how many parts a sum is cut: as many as fill the device twice, twice as many, and half as many."""
    longest = max(1, min(MOST, -(-product.depth // DEPTH) // SHORTEST))
    best = (
        max(1, min(longest, -(-2 * PROCESSORS // blocks(product, tile)))) if blocks(product, tile) < PROCESSORS else 1
    )
    return list(dict.fromkeys([best, min(longest, 2 * best), max(1, best // 2)]))


def _phrase(tile: str) -> str:
    rows, columns = TILES[tile][:2]
    sizes = f"tiles of {rows} x {columns}"
    return f"operands cut before, {sizes} by wgmma" if _cuts(tile) else sizes


def _why(tile: str) -> str:
    if _cuts(tile):
        return "Operands that are cut once feed Hopper's own instructions, at twice the rate of mma.sync."
    rows, columns = TILES[tile][:2]
    return f"A tile of {rows} x {columns} reads {(rows + columns) * 4 / rows / columns:.3g} bytes a product's term."


def _stage(tile: str) -> int:
    return (TILES[tile][0] + TILES[tile][1]) * DEPTH * 4
