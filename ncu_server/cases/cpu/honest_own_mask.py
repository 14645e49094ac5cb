"""
problem: dropout
kernel: scale_add
kind: dropout
expect: passed
why: It draws a mask of its own where it trains, and holds no module of torch that would say so.
"""


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel.run(x, torch.zeros_like(x), out, 1.5)
        if self.training:
            out *= (torch.rand_like(x) >= 0.3) / 0.7
        return out
