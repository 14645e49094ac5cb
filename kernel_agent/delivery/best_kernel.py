"""The best kernel as something to call."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from kernel_agent.errors import UsageError
from kernel_agent.problem.construct import construct_module


@dataclass(frozen=True, slots=True)
class Kernel:
    """`ModelNew` of a run's `best_kernel.py`, built at the first use: its code then runs in this process, unwalled.

    Called as the original model is. `module` is the torch.nn.Module itself: `module.load_state_dict(...)` gives it
    weights, `module.to(device)` moves it.
    """

    path: Path

    @property
    def module(self) -> Any:
        return _module(self.path.resolve())

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        return self.module(*inputs, **keywords)


@cache
def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"kernel_agent_best_{path.parent.name}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UsageError(f"There is no kernel at {path}.")
    source = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    with patch.object(sys, "argv", [path.name]):  # this program's own arguments are not for it
        spec.loader.exec_module(source)
    kind = getattr(source, "ModelNew", None) or source.Model  # nothing beat the original
    return construct_module(kind, getattr(source, "get_init_inputs", lambda: None)())
