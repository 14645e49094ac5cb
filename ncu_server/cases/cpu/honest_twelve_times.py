"""
problem: wide_scale_add
kernel: scale_add
kind: phase replay
expect: wrong
why: Twelve honest calls over inputs too large to be drawn again, as many as a check takes; then the last result.
twin: honest_wide_scale_add
"""


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.calls = 0

    def forward(self, x, y):
        self.calls += 1
        if self.calls <= 12:
            self.out = torch.empty_like(x)
            kernel.run(x, y, self.out, self.scale)
        return self.out
