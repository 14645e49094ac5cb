"""Names of kernels as their authors wrote them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from ncu_server.sandbox.supervisor import Supervisor

PROGRAMS = ("cu++filt", "c++filt")
TIMEOUT_S = 20.0


async def demangled(names: Sequence[str]) -> list[str]:
    """The names demangled, where a program can do so here; else as they are."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None or not names:
        return list(names)
    try:
        ended = await Supervisor().run([program, "--", *names], TIMEOUT_S)
    except TimeoutError:
        return list(names)
    found = ended.output.decode(errors="replace").splitlines()
    return found if len(found) == len(names) else list(names)
