"""What can be varied in an attention's kernel."""

from __future__ import annotations

from kernel_agent.proposers.templates.arithmetic import BY_NAME
from kernel_agent.proposers.templates.attention import Attention
from kernel_agent.proposers.templates.attention_tile import ranked
from kernel_agent.proposers.templates.genes import Genes, Space, starting, strategy
from kernel_agent.run.types import Device


def attention_space(attention: Attention, _: Device) -> Space:
    """Genes of an attention in CUDA C++: arithmetic, tile of queries and keys, stages."""
    names = attention.arithmetics
    tiles = ranked(attention.shape, names[0])
    most = next(iter(tiles.values())).stages
    genes = [
        strategy("arithmetic", [(name, BY_NAME[name].phrase, BY_NAME[name].why) for name in names]),
        strategy("tile", [(tile, f"tiles of {tile}", _why(tile)) for tile in tiles]),
        strategy(
            "stages",
            [
                (n, f"up to {n} stages", f"{n - 1} tiles of keys and values come while one is multiplied.")
                for n in range(most, 1, -1)
            ],
        ),
    ]
    departures: list[Genes] = [{"tile": tile} for tile in list(tiles)[1:2]]
    departures += [{"arithmetic": name} for name in names[1:]]
    departures += [{"tile": tile} for tile in list(tiles)[2:]]
    return starting(genes, [*departures, {"stages": 2}])


def _why(tile: str) -> str:
    queries, keys = tile.split("x")
    return f"A block keeps {queries} queries and finds the maxima of {keys} keys at once; scores stay in registers."
