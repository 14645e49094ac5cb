"""Write the traced graphs of modules, as the server traces them.

python -m tests.kernel_agent.proposers.trace [PART ...]

PART is a folder beside this file. Its modules.py has MODULES, which go into graphs.json, and maybe others: BARE, beside
them, and FULL, of full size, which go into full.json by their shapes alone.
"""

from __future__ import annotations

import argparse
import json
from importlib import import_module
from pathlib import Path
from types import ModuleType

import torch

from ncu_server.worker.tracing.graph import graph

HERE = Path(__file__).parent
PARTS = sorted(file.parent.name for file in HERE.glob("*/modules.py"))


def write(sources: dict[str, str], file: Path) -> None:
    """Write the graph of each module's source."""
    found = {}
    for name, text in sources.items():
        module = ModuleType("problem")
        exec(compile(text, "problem", "exec"), module.__dict__)
        found[name] = graph(module.Model(), (module.get_inputs(), {}))["graph"]
    file.write_text(json.dumps(found, separators=(",", ":")) + "\n")


def trace(part: str) -> None:
    """Write the graphs of one part."""
    modules, place = import_module(f"tests.kernel_agent.proposers.{part}.modules"), HERE / part
    names = [*modules.MODULES, *getattr(modules, "BARE", ())]
    write({name: modules.source(name) for name in names}, place / "graphs.json")
    if large := getattr(modules, "FULL", None):
        source = getattr(modules, "full_source", modules.source)
        with torch.device("meta"):
            write({name: source(name) for name in large}, place / "full.json")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", metavar="PART", nargs="*", default=PARTS)
    parts = parser.parse_args().parts
    torch.manual_seed(0)
    for part in parts:
        trace(part)


if __name__ == "__main__":
    main()
