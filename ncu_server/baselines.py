"""PyTorch's own times: eager and the modes of torch.compile, measured once and kept on disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from ncu_server import schema
from ncu_server.session import BASELINES, Session, ours
from ncu_server.targets import Probe
from ncu_server.timing import alternate, combined
from ncu_server.zygote import ChildError

FORMAT = "5"
SAMPLING_S = 3.0
KERNELS_SHOWN = 12
Rows = TypeAdapter(dict[str, schema.BaselineResult])


async def measured(
    cache: Path, session: Session, probe: Probe, names: Sequence[str]
) -> tuple[list[schema.BaselineResult], list[str]]:
    """The times of the named baselines, and notes: which do not run, what came from the cache. Raises Refusal."""
    kept = cache / "baselines" / f"{_key(session, probe)}.json"
    known = _read(kept)
    notes = ["baselines' times are from the cache"] if known else []
    if missing := [n for n in names if n not in known]:
        fresh, said = await _measure(session, missing)
        notes = [*notes, *said]
        known |= fresh
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps({name: row.model_dump() for name, row in known.items()}))
    return [known[n] for n in BASELINES if n in names and n in known], notes


def fair(rows: Sequence[schema.BaselineResult]) -> str:
    """The name of the fastest, which is the one to beat."""
    return min(rows, key=lambda row: row.timing.median_us).name


async def _measure(session: Session, names: Sequence[str]) -> tuple[dict[str, schema.BaselineResult], list[str]]:
    """Each in turns with eager, on every input shape."""
    wanted = ["eager", *(n for n in names if n != "eager")]
    taken, notes = [], []
    for case in session.timed:
        try:
            sides = await session.sides(wanted, case)
            notes += [note for note in sides.notes if note not in notes]
            wanted = list(sides.children)
            taken.append(await alternate(sides.children, wanted[-1], sides.rotation, session.target.tie, SAMPLING_S))
        except ChildError as error:
            raise ours(error) from error
    samples = combined(taken)
    return {
        name: schema.BaselineResult(
            name=name,
            timing=samples.timing(name),
            speedup=None if name == "eager" else samples.speedup("eager", name),
            kernels=await _kernels(session, name) if BASELINES[name] else [],
        )
        for name in wanted
    }, notes


async def _kernels(session: Session, name: str) -> list[str]:
    try:
        names = await session.kernels(name)
    except ChildError as error:
        raise ours(error) from error
    rest = len(names) - KERNELS_SHOWN
    return names if rest <= 0 else [*names[:KERNELS_SHOWN], f"and {rest} more"]


def _read(kept: Path) -> dict[str, schema.BaselineResult]:
    try:
        return Rows.validate_json(kept.read_text())
    except (OSError, ValidationError):
        return {}


def _key(session: Session, probe: Probe) -> str:
    parts = (FORMAT, session.problem, session.target.name, probe.device, str(probe.threads), version("torch"))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]
