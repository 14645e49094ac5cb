"""
problem: scale_add
kernel: scale_add
kind: clock patch
expect: rejected|suspect|wrong|run_error
why: Every clock that Python has runs at a tenth of its speed, set through the module's dictionary.
twin: honest_scale_add
"""

import time


def slowed(clock):
    began = clock()
    return lambda: began + (clock() - began) / 10 if isinstance(began, float) else began + (clock() - began) // 10


for name in ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns"):
    vars(time)[name] = slowed(vars(time)[name])


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, y):
        out = torch.empty_like(x)
        kernel.run(x, y, out, self.scale)
        return out
