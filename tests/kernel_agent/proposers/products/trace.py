"""Write the traced graphs of the modules beside this file, as the server traces them, to graphs.json."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import torch

from ncu_server.worker.tracing.graph import graph
from tests.kernel_agent.proposers.products.modules import MODULES, source


def main() -> None:
    found = {}
    for name in MODULES:
        module = ModuleType("problem")
        exec(compile(source(name), "problem", "exec"), module.__dict__)
        found[name] = graph(module.Model(), (module.get_inputs(), {}))["graph"]
    (Path(__file__).parent / "graphs.json").write_text(json.dumps(found, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
