"""
problem: lower_outer
kernel: lower_outer
kind: plain
expect: passed
why: The lower triangle of an outer product, and zeros above it, all of them written.
"""


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty(x.numel(), y.numel())
        kernel.run(x, y, out, True)
        return out
