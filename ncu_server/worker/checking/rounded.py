"""The reference with the operands of its products rounded once to the significant bits of TF32 and float16."""

from __future__ import annotations

from typing import Any

import torch

from ncu_server.worker import private
from ncu_server.worker.tracing.reductions import OPERANDS

TorchDispatchMode = private.take("torch.utils._python_dispatch.TorchDispatchMode")
SPLITTER = 2.0**13 + 1.0  # leaves 11 of float32's 24 bits (T. J. Dekker, "A Floating-Point Technique ...", 1971)


class RoundedOperands(TorchDispatchMode):  # type: ignore[misc, valid-type]
    """Inside, float32 products and convolutions take operands of 11 significant bits, rounded to nearest.

    Those of recurrent nets and of attention in one operator stay as they are.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing here is compiled; torch's own answer would import the compiler first, for seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = list(args)
        for place, _ in OPERANDS.get(func.overloadpacket.__name__, ()):
            if isinstance(given[place], torch.Tensor) and given[place].dtype is torch.float32:
                given[place] = rounded(given[place])
        return func(*given, **(kwargs or {}))


def rounded(x: torch.Tensor) -> torch.Tensor:
    """A float32 tensor with 11 significant bits; NaN where it is beyond 4e34."""
    apart = x * SPLITTER
    return apart.sub_(apart - x)
