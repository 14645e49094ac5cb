"""
problem: scale_add
kernel: scale_add
kind: plain
expect: passed
why: One pass over memory.
"""


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, y):
        out = torch.empty_like(x)
        kernel.run(x, y, out, self.scale)
        return out
