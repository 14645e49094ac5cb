"""
problem: three_scales
kernel: three_scales
kind: unlike scales
expect: passed
why: Each feature is as exact as its own size asks.
"""


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], 3 * x.shape[1])
        kernel.run(x, out, True)
        return out
