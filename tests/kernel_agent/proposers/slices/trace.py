"""Write the traced graphs of the modules beside this file, as the server traces them, to graphs.json."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.kernel_agent.proposers.regions.trace import write
from tests.kernel_agent.proposers.slices.modules import MODULES, source


def main() -> None:
    write({name: source(name) for name in MODULES}, Path(__file__).parent / "graphs.json")


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
