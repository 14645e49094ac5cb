"""What can be varied in a convolution's kernel."""

from __future__ import annotations

from kernel_agent.proposers.templates.arithmetic import BY_NAME
from kernel_agent.proposers.templates.convolution import Convolution
from kernel_agent.proposers.templates.convolution_tile import ranked
from kernel_agent.proposers.templates.genes import Genes, Space, starting, strategy
from kernel_agent.run.types import Device


def convolution_space(convolution: Convolution, _: Device) -> Space:
    """Genes of a convolution in CUDA C++: arithmetic and tile."""
    names = convolution.arithmetics
    tiles = list(ranked(convolution.shape, names[0]))
    genes = [
        strategy("arithmetic", [(name, BY_NAME[name].phrase, BY_NAME[name].why) for name in names]),
        strategy("tile", [(tile, f"tiles of {tile}", _why(tile)) for tile in tiles]),
    ]
    departures: list[Genes] = [{"tile": tile} for tile in tiles[1:2]]
    departures += [{"arithmetic": name} for name in names[1:]]
    return starting(genes, [*departures, *({"tile": tile} for tile in tiles[2:])])


def _why(tile: str) -> str:
    places, channels = tile.split("x")
    return f"A tile of {places} places and up to {channels} channels reads a box of the input once for all taps."
