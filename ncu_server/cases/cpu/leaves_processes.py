"""
problem: scale_add
kernel: scale_add
kind: processes
expect: passed|build_error|run_error
why: Starts programs in sessions of their own, forks, and kills a process of the user.
twin: honest_scale_add
effects: process, victim, file
"""

import os
import signal
import subprocess
import sys


def spread():
    sleep = [sys.executable, "-c", "import time; time.sleep(300)", "@MARK@"]
    for deed in (
        lambda: subprocess.Popen(sleep, start_new_session=True),
        lambda: os.posix_spawn(sys.executable, sleep, {}),
        lambda: subprocess.run(["touch", "@DIRECTORY@/ran"]),
        lambda: os.kill(int("@VICTIM@"), signal.SIGKILL),
    ):
        try:
            deed()
        except OSError:
            continue


spread()


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, y):
        spread()
        out = torch.empty_like(x)
        kernel.run(x, y, out, self.scale)
        return out
