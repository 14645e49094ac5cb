"""Candidates against float64, within the server's budget, in a process of its own because it imports torch.

Reads a JSON list of {"name", "source", "candidate"} from standard input and prints a JSON object of faults by name.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import torch

BUDGET = 64  # times the larger of float32's own error and its epsilon times the answer's root mean square


def loaded(source: str) -> ModuleType:
    module = ModuleType("candidate")
    exec(compile(source, "candidate", "exec"), module.__dict__)
    return module


def listed(answer: object) -> list[torch.Tensor]:
    return [answer] if isinstance(answer, torch.Tensor) else list(answer)  # type: ignore[call-overload]


def spoiled(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with NaN and both infinities in it."""
    copy = tensor.clone()
    flat = copy.view(-1)
    for place, value in ((0, "nan"), (flat.numel() // 2, "inf"), (flat.numel() // 3, "-inf")):
        flat[place] = float(value)
    return copy


def fault(got: torch.Tensor, plain: torch.Tensor, exact: torch.Tensor, times: float = 1.0) -> str | None:
    """What is wrong with an output, given float32's answer and float64's."""
    if got.shape != plain.shape or got.dtype != plain.dtype:
        return f"{got.dtype} {list(got.shape)} instead of {plain.dtype} {list(plain.shape)}"
    got, plain, exact = got.double(), plain.double(), exact.double()
    if not torch.equal(got.isnan(), plain.isnan()):
        return f"{got.isnan().sum()} NaN instead of {plain.isnan().sum()}"
    finite = plain.isfinite() & exact.isfinite()
    if not torch.equal(got[plain.isinf()], plain[plain.isinf()]):
        return "infinities differ"
    error = (got - exact)[finite].abs().max().item() if finite.any() else 0.0
    own = (plain - exact)[finite].abs().max().item() if finite.any() else 0.0
    rms = exact[finite].square().mean().sqrt().item() if finite.any() else 0.0
    budget = times * BUDGET * max(own, torch.finfo(torch.float32).eps * rms)
    return f"error {error:.3g} beyond {budget:.3g}" if error > budget else None


@torch.no_grad()
def verdict(case: dict[str, str], module: ModuleType) -> str | None:
    torch.manual_seed(0)
    problem = loaded(case["source"])
    model = problem.Model().eval()
    for parameter in model.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))
    candidate = module.ModelNew().eval()
    candidate.load_state_dict(model.state_dict())
    exact = problem.Model().eval()
    exact.load_state_dict(model.state_dict())
    exact.double()
    inputs = problem.get_inputs()
    rounds = [inputs] if case["name"] == "activations" else [inputs, [spoiled(x) for x in inputs]]
    for given in rounds:  # eager's GELU on the CPU makes NaN of infinity, so that one is asked for numbers only
        plain = listed(model(*(x.clone() for x in given)))
        precise = listed(exact(*(x.double() for x in given)))
        got = listed(candidate(*given))
        for n, three in enumerate(zip(got, plain, precise, strict=True)):
            if wrong := fault(*three):
                return f"output {n}: {wrong}"
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
