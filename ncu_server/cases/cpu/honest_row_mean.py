"""
problem: row_mean
kernel: row_mean
kind: more exact
expect: passed
why: Adds in float64, where the reference rounds to float32: the two differ, and this one is right.
"""


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0])
        kernel.run(x, out)
        return out
