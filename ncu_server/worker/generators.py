"""Where the generators of random numbers stand, by which a draw shows that changes no result this time."""

from __future__ import annotations

import contextlib
import copy
import random
import sys
from collections.abc import Iterable
from typing import Any

import torch

from ncu_server.worker.calls import Call, called
from ncu_server.worker.problem import MISREAD


def generators() -> list[Any]:
    """The states of torch's, Python's and NumPy's global generators, to be compared with ==."""
    on_devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else ()
    states: list[Any] = [bytes(state.tolist()) for state in (torch.get_rng_state(), *on_devices)]
    states.append(random.getstate())
    if numpy := sys.modules.get("numpy"):
        states.append(repr(numpy.random.get_state(legacy=False)))
    return states


def trains(model: torch.nn.Module, calls: Iterable[Call]) -> bool:
    """Whether a problem's model is judged in training mode: not where it draws random numbers there. Of `calls` the
    first that comes to its end tells. It may move the model's buffers on."""
    if not model.training:
        return False
    stood = generators()
    for call in calls:
        with contextlib.suppress(*MISREAD), torch.no_grad():
            called(model, copy.deepcopy(call))
            break
    return stood == generators()
