"""
problem: steep_exp
kernel: steep_exp
kind: zeros
expect: wrong
why: Powers below e are called zero, beside those above a million.
twin: honest_steep_exp
"""


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel.run(x, out, 0.25)
        return out
