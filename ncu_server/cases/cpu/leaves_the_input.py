"""
problem: in_place
kernel: scale_add
kind: forgotten state
expect: wrong
why: Returns what is asked and leaves the input as it was, where the reference doubles it.
twin: honest_in_place
"""


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        kernel.run(x, y, out, 2.0)
        return out
