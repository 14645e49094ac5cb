"""A candidate's parameters beside the reference's: both constructors run under one seed, and draw the same if they ask
for the same, in the same order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import torch

from ncu_server.worker.answers import Difference
from ncu_server.worker.dense import unlike

Named = Mapping[str, torch.Tensor]
MOST = 1 << 26  # values of a model that are looked up among another's


def tensors_of(model: torch.nn.Module) -> dict[str, dict[str, torch.Tensor]]:
    """The dense tensors of a model: its parameters and buffers by name, and what else its modules keep."""
    own = {name: t.detach() for name, t in (*model.named_parameters(), *model.named_buffers()) if not unlike(t)}
    kept = {}
    for place, module in model.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor) and not unlike(value):
                kept[f"{place}.{name}" if place else name] = value.detach()
    return {"own": own, "kept": kept}


def differences(mine: Named, own: Named, kept: Named, but: Collection[str]) -> list[Difference]:
    """Which of `mine` a candidate, which has its `own` and has `kept` more, holds with other values or not at all.

    Values count wherever they stand, in whatever order and dtype: a constructor may pack them. `but` is what calls
    change.
    """
    known = _values([*own.values(), *kept.values()])
    missing = [
        name
        for name, tensor in mine.items()
        if name not in but and (_differs(tensor, own.get(name)) or not _within(tensor, known))
    ]
    free = [name for name in own if name not in mine or name in missing]
    found: list[Difference] = []
    for name in missing:
        other = _counterpart(name, mine[name], {n: own[n] for n in free if n == name or n not in missing})
        if other:
            free.remove(other)
        found.append({"name": name, "other": other, "named": other == name})
    return found


def _counterpart(name: str, tensor: torch.Tensor, others: Named) -> str | None:
    """What stands for a parameter: of its name, else of its shape, else of as many elements."""
    shape, turned = list(tensor.shape), list(tensor.shape)[::-1]
    if name in others and others[name].numel() == tensor.numel():
        return name
    for fits in (
        lambda o: list(o.shape) == shape,
        lambda o: list(o.shape) == turned,
        lambda o: o.numel() == tensor.numel(),
    ):
        if found := next((n for n, o in others.items() if fits(o)), None):
            return found
    return None


def _differs(mine: torch.Tensor, other: torch.Tensor | None) -> bool:
    """Whether there is one of the same shape and dtype with other values."""
    if other is None or other.shape != mine.shape or other.dtype != mine.dtype:
        return False
    return not torch.equal(mine.cpu(), other.cpu())


def _values(tensors: Iterable[torch.Tensor]) -> dict[torch.dtype, torch.Tensor]:
    """All values of each dtype; none where there are too many."""
    floats = [t.reshape(-1).cpu() for t in tensors if t.is_floating_point() and t.element_size() > 1]
    if sum(t.numel() for t in floats) > MOST:
        return {}
    return {dtype: torch.cat([t for t in floats if t.dtype is dtype]) for dtype in {t.dtype for t in floats}}


def _within(tensor: torch.Tensor, known: Mapping[torch.dtype, torch.Tensor]) -> bool:
    """Whether all values of a tensor are among those known of some dtype; true for what cannot be looked up."""
    if not tensor.is_floating_point() or tensor.element_size() == 1 or tensor.numel() > MOST:
        return True
    flat = tensor.detach().reshape(-1).cpu()
    return any(bool(torch.isin(flat.to(dtype), values).all()) for dtype, values in known.items())


def take(model: torch.nn.Module, found: Iterable[Difference], own: Named, fill: float) -> None:
    """Give a model the candidate's values of what differs; `fill` where nothing stands for it."""
    tensors: dict[str, Any] = dict((*model.named_parameters(), *model.named_buffers()))
    with torch.no_grad():
        for one in found:
            mine = tensors[one["name"]]
            mine.copy_(_shaped(own[one["other"]], mine) if one["other"] else torch.full_like(mine, fill))


def _shaped(other: torch.Tensor, mine: torch.Tensor) -> torch.Tensor:
    turned = mine.dim() == 2 and other.shape != mine.shape and other.shape == mine.shape[::-1]
    return other.mT if turned else other.reshape(mine.shape)
