"""
problem: scale_add
kernel: scale_add
kind: crash
expect: run_error
why: Reserves memory without end, first in steps of eight terabytes, then of one gigabyte.
twin: honest_scale_add
"""


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.kept = []

    def forward(self, x, y):
        for size in [1 << 43] * 8 + [1 << 30] * 64:
            self.kept.append(torch.empty(size, dtype=torch.uint8))
        out = torch.empty_like(x)
        kernel.run(x, y, out, 1.0)
        return out
