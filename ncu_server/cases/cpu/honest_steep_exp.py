"""
problem: steep_exp
kernel: steep_exp
kind: unlike scales
expect: passed
why: A power of two for one of e is ten roundings off in relation to each value, however small that is.
"""


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel.run(x, out, -100.0)
        return out
