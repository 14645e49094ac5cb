"""What holds between timed blocks: nobody else runs, and every call gets values of its own, integers too."""

import asyncio
import os
from pathlib import Path

import pytest
import torch

from ncu_server.worker.stage import Drift, drifts
from ncu_server.zygote import ChildFault, Zygote

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_child_rests_until_it_is_asked_again(tmp_path: Path) -> None:
    zygote = Zygote(tmp_path, {"OMP_NUM_THREADS": "1"} | {"PATH": os.environ["PATH"]}, "cpu")
    try:
        child = await zygote.spawn("judge")
        child.rest()
        async with asyncio.timeout(10):
            while Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
                await asyncio.sleep(0.01)
        with pytest.raises(ChildFault, match="no_such_verb"):
            await child.ask("no_such_verb", timeout_s=30)
        child.rest()
        child.close()
        async with asyncio.timeout(10):
            await child.ended
    finally:
        zygote.close()


@pytest.mark.parametrize(
    ("values", "moves"),
    [
        (torch.randint(0, 9, (64, 32)), True),
        (torch.randint(0, 2, (64, 32)).bool(), True),
        (torch.arange(640).reshape(20, 32), False),
        (torch.ones(8, 8).tril().bool(), False),
        (torch.zeros(64, dtype=torch.int32), False),
        (torch.randint(0, 9, (64, 32)).t(), True),
        (torch.arange(40).reshape(20, 2), False),
        (torch.tensor([[1, 1, 0, 0, 0]]), False),
        (torch.tensor(3), False),
    ],
)
async def test_integers_drift_along_the_longest_dimension_where_they_are_in_no_order(
    values: torch.Tensor, moves: bool
) -> None:
    assert drifts(values) == moves
    if moves:
        held = values.clone()
        along = 0 if values.shape[0] > values.shape[1] else 1
        drift = Drift(held)
        seen = set()
        for nonce in range(10**9, 10**9 + 400_000, 9973):
            drift.move(nonce)
            assert torch.equal(held.long().sort(along).values, values.long().sort(along).values)
            seen.add(held.numpy().tobytes())
        assert len(seen) > 20
