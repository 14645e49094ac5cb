"""What one call does that can be seen from outside: its outputs, the inputs and the buffers that it changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ncu_server.worker.tensors import flatten

PIECE = 1 << 28  # bytes that are compared at once


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors hold the same bits."""
    there = one.device if one.device == other.device else torch.device("cpu")
    first, second = (t.detach().to(there).contiguous().reshape(-1).view(torch.uint8).split(PIECE) for t in (one, other))
    return len(first) == len(second) and all(map(torch.equal, first, second))


def changed(before: Sequence[torch.Tensor], after: Sequence[torch.Tensor]) -> list[int]:
    """The places at which the bits differ."""
    return [i for i, (b, a) in enumerate(zip(before, after, strict=True)) if not same(b, a)]


def visible(out: Any, arguments: Any, model: torch.nn.Module, inputs: Sequence[int], buffers: Sequence[str]) -> Any:
    """The tree that is compared: outputs, then the inputs and buffers that the reference changes.

    Raises KeyError where the model lacks such a buffer.
    """
    if not inputs and not buffers:
        return out
    given, own = flatten(arguments)[1], dict(model.named_buffers())
    return {"outputs": out, "inputs": [given[i] for i in inputs], "buffers": {name: own[name] for name in buffers}}


def restore(module: torch.nn.Module, first: Mapping[str, torch.Tensor], names: Collection[str]) -> None:
    """Give the buffers of these names the values in `first` again; one that was made anew in another shape is left."""
    with torch.no_grad():
        for name, buffer in module.named_buffers():
            if name in names and name in first and first[name].shape == buffer.shape:
                buffer.copy_(first[name])


@dataclass(frozen=True, slots=True)
class State:
    """What calls of `module` change beside their outputs, as the reference's do: inputs by place, buffers by name with
    the values that they are constructed with."""

    module: torch.nn.Module
    inputs: Sequence[int]
    buffers: Mapping[str, torch.Tensor]

    def reset(self) -> None:
        """Give the buffers their first values. Raises KeyError where one is there no more."""
        own = dict(self.module.named_buffers()) if self.buffers else {}
        for name, first in self.buffers.items():
            own[name].copy_(first)

    def seen(self, out: Any, arguments: Any) -> Any:
        """The tree that is compared; see `seen`."""
        return visible(out, arguments, self.module, self.inputs, list(self.buffers))


def state(module: torch.nn.Module, first: Mapping[str, torch.Tensor], effects: Mapping[str, Any]) -> State:
    """The state that `effects` names; `first` are the values of all buffers after construction."""
    return State(module, effects["inputs"], {name: first[name] for name in effects["buffers"]})
