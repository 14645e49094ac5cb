"""Write the traced graphs of the modules beside this file, as the server traces them, to graphs.json."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.kernel_agent.proposers.attentions.modules import FULL, MODULES, source
from tests.kernel_agent.proposers.regions.trace import write


def main() -> None:
    here = Path(__file__).parent
    write({name: source(name) for name in MODULES}, here / "graphs.json")
    with torch.device("meta"):  # only shapes are asked for
        write({name: source(name) for name in FULL}, here / "full.json")


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
