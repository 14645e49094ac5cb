"""One candidate through KernelBench's own judge, in this process: the child of versus_kernelbench.

python kernelbench_one.py CHECKOUT REFERENCE CANDIDATE BACKEND ANSWER [--compile]: five correctness and a hundred timing
trials, as its scripts ask for; ANSWER gets the verdict as JSON. Packages that it imports for other purposes may be
missing. With --compile the candidate is only built, and a later call finds its kernels compiled.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import types
from pathlib import Path
from typing import Any

# What its modules import for talking to models and for loading its data set.
UNUSED = {
    "archon.completions": ["Archon"],
    "datasets": ["load_dataset"],
    "dotenv": ["load_dotenv"],
    "litellm": ["completion"],
    "modal": [],
    "openai": ["OpenAI"],
    "requests": [],
    "tqdm": ["tqdm"],
}


def stand_in(name: str, members: list[str]) -> None:
    """Put an empty module where a package is missing."""
    top = name.split(".")[0]
    if top in sys.modules or importlib.util.find_spec(top) is not None:
        return
    for part in dict.fromkeys((top, name)):
        sys.modules[part] = types.ModuleType(part)
    for member in members:
        setattr(sys.modules[name], member, lambda *_, **__: None)


def _architecture() -> None:
    """What KernelBench's scripts have torch build for."""
    import torch

    major, minor = torch.cuda.get_device_capability()
    os.environ["TORCH_CUDA_ARCH_LIST"] = f"{major}.{minor}"


def judged(checkout: Path, reference: Path, candidate: Path, backend: str) -> dict[str, Any]:
    for name, members in UNUSED.items():
        stand_in(name, members)
    sys.path.insert(0, str(checkout / "src"))
    import torch
    from kernelbench.eval import eval_kernel_against_ref

    _architecture()
    result = eval_kernel_against_ref(
        reference.read_text(), candidate.read_text(), num_correct_trials=5, num_perf_trials=100,
        measure_performance=True, backend=backend, device=torch.device("cuda:0"), precision=torch.float32,
        build_dir=os.environ["TORCH_EXTENSIONS_DIR"],
    )  # fmt: skip
    if result is None:
        return {"accepted": False, "why": "asks for a retry"}
    said = {k: str(v)[:500] for k, v in result.metadata.items()}
    return {
        "accepted": bool(result.compiled and result.correctness),
        "compiled": result.compiled,
        "runtime_ms": result.runtime,
        "reference_ms": result.ref_runtime,
        "flagged": "excessive_speedup" in said,
        "why": said.get("compilation_error") or said.get("runtime_error") or said.get("correctness_issue") or "",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("checkout", "reference", "candidate"):
        parser.add_argument(name, metavar=name.upper(), type=Path)
    parser.add_argument("backend", metavar="BACKEND")
    parser.add_argument("answer", metavar="ANSWER", type=Path)
    parser.add_argument("--compile", action="store_true")
    given = parser.parse_args()
    if given.compile:
        _architecture()
        exec(compile(given.candidate.read_text(), "candidate", "exec"), {"__name__": "candidate"})
        return
    verdict = judged(given.checkout, given.reference, given.candidate, given.backend)
    given.answer.write_text(json.dumps(verdict))


if __name__ == "__main__":
    main()
