"""
problem: wide_scale_add
kernel: scale_add
kind: defensive code
expect: passed
why: Counts its calls, and computes all of every one.
"""


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.calls = 0

    def forward(self, x, y):
        self.calls += 1
        out = torch.empty_like(x)
        kernel.run(x, y, out, self.scale)
        return out
