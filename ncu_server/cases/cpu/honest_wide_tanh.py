"""
problem: wide_tanh
kernel: wide_tanh
kind: defensive code
expect: passed
why: Counts its calls, and computes all of every one.
"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        out = torch.empty_like(x)
        kernel.run(x, out, True)
        return out
