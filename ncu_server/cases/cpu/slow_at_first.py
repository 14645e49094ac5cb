"""
problem: scale_add
kernel: scale_add
kind: slow warm-up
expect: passed|suspect
why: The first calls take half a second, so that a judge who counts by them takes few samples.
twin: honest_scale_add
at_most: 6
"""

import time


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.calls = 0

    def forward(self, x, y):
        self.calls += 1
        if self.calls < 6:
            time.sleep(0.5)
        out = torch.empty_like(x)
        kernel.run(x, y, out, self.scale)
        return out
