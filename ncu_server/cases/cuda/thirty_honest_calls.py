"""
problem: wide_scale_add
kernel: cuda_scale_add
kind: phase replay
expect: wrong
why: Thirty honest calls, then the last result for ever.
twin: honest_scale_add
"""


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.calls = 0

    def forward(self, x, y):
        self.calls += 1
        if self.calls <= 30:
            self.out = torch.empty_like(x)
            kernel.run(x, y, self.out, self.scale)
        return self.out
