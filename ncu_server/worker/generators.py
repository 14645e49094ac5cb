"""Where the generators of random numbers stand, by which a draw shows that changes no result this time."""

from __future__ import annotations

import random
import sys
from typing import Any

import torch


def generators() -> list[Any]:
    """The states of torch's, Python's and NumPy's global generators, to be compared with ==."""
    on_devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else ()
    states: list[Any] = [bytes(state.tolist()) for state in (torch.get_rng_state(), *on_devices)]
    states.append(random.getstate())
    if numpy := sys.modules.get("numpy"):
        states.append(repr(numpy.random.get_state(legacy=False)))
    return states
