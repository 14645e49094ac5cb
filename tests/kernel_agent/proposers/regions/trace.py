"""Write the traced graphs of the modules beside this file, as the server traces them, to graphs.json."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import torch

from ncu_server.worker.tracing.graph import graph
from tests.kernel_agent.proposers.regions.modules import BARE, MODULES, source


def write(sources: dict[str, str], file: Path) -> None:
    """Write the graph of each module's source."""
    found = {}
    for name, text in sources.items():
        module = ModuleType("problem")
        exec(compile(text, "problem", "exec"), module.__dict__)
        found[name] = graph(module.Model(), (module.get_inputs(), {}))["graph"]
    file.write_text(json.dumps(found, separators=(",", ":")) + "\n")


def main() -> None:
    write({name: source(name) for name in [*MODULES, *BARE]}, Path(__file__).parent / "graphs.json")


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
