"""
problem: wide_scale_add
kernel: cuda_scale_add
kind: clock patch
expect: rejected|suspect|run_error|wrong|passed
why: Events claim a twentieth of what they measured; every class that has elapsed_time is looked for and changed.
twin: honest_scale_add
at_most: 2
"""

import gc

for found in gc.get_objects():
    if isinstance(found, type) and "elapsed_time" in vars(found):
        try:
            setattr(found, "elapsed_time", lambda self, end, real=found.elapsed_time: real(self, end) / 20)
        except TypeError:
            continue


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, y):
        out = torch.empty_like(x)
        kernel.run(x, y, out, self.scale)
        return out
