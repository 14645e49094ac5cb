"""What holds between timed blocks: nobody else runs."""

import asyncio
import os
from pathlib import Path

import pytest

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
