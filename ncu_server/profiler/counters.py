"""Whether this user may read the GPU's counters here. Nothing tells but trying: the smallest kernel is profiled."""

from __future__ import annotations

import sys

from ncu_server.errors import Code, Refusal
from ncu_server.machine.lease import Progress
from ncu_server.machine.machine import Machine
from ncu_server.profiler import ncu, profile
from ncu_server.profiler.reports import Reports
from ncu_server.wire.evaluation import CountersResult

SMALLEST = "import torch; torch.ones(8, device='cuda'); torch.cuda.synchronize()"
TIMEOUT_S = 120.0


async def probed(machine: Machine, kept: Reports, progress: Progress) -> CountersResult:
    """Allowed, denied, or unknown because of something else that stands in the way; never a refusal."""
    selection = ncu.Selection(detail="basic", count=1)
    try:
        await profile.command(machine, kept, [sys.executable, "-c", SMALLEST], None, selection, TIMEOUT_S, progress)
    except Refusal as refusal:
        denied = refusal.code is Code.COUNTERS_DENIED
        return CountersResult(state="denied" if denied else "unknown", why=refusal.reason, fix=refusal.fix or None)
    return CountersResult(state="allowed", why="a kernel was profiled", fix=None)
