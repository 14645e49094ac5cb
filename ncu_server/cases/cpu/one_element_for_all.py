"""
problem: row_mean
kernel: row_mean
kind: shape lies
expect: wrong
why: One number, which broadcasts against all that are expected.
twin: honest_row_mean
"""


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(1)
        kernel.run(x[:1], out)
        return out
