"""Candidates of modules in training against float64: outputs, and the buffers that a call leaves.

Reads a JSON list of {"name", "source", "candidate"} from standard input, and maybe "times" the usual error that pass;
prints a JSON object of faults by name.
"""

from __future__ import annotations

import copy
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import torch

from tests.kernel_agent.proposers.templates.judge import fault, listed, loaded


def _to(dtype: torch.dtype, x: torch.Tensor) -> torch.Tensor:
    return x.to(dtype) if x.is_floating_point() else x


@torch.no_grad()
def verdict(case: dict[str, str], module: ModuleType) -> str | None:
    torch.manual_seed(0)
    problem = loaded(case["source"])
    plain, candidate = problem.Model(), module.ModelNew()
    candidate.load_state_dict(plain.state_dict())
    exact = copy.deepcopy(plain).double()
    for number in range(2):
        inputs = problem.get_inputs()
        three = [
            [
                *listed(model(*(_to(dtype, x) for x in copy.deepcopy(inputs)))),
                *model.state_dict().values(),
            ]
            for model, dtype in ((candidate, torch.float32), (plain, torch.float32), (exact, torch.float64))
        ]
        for n, (got, wanted, precise) in enumerate(zip(*three, strict=True)):
            if wrong := fault(got, wanted, precise, float(case.get("times", 1))):
                return f"call {number}, tensor {n}: {wrong}"
    return None


def main() -> None:
    torch.set_num_threads(1)
    cases = json.load(sys.stdin)
    with ThreadPoolExecutor(2) as pool:
        modules = list(pool.map(lambda case: loaded(case["candidate"]), cases))
    found = {case["name"]: verdict(case, module) for case, module in zip(cases, modules, strict=True)}
    json.dump({name: wrong for name, wrong in found.items() if wrong}, sys.stdout)


if __name__ == "__main__":
    main()
