"""
problem: wide_scale_add
kernel: cuda_scale_add
kind: plain
expect: passed
why: One thread an element on the caller's stream.
"""


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, y):
        out = torch.empty_like(x)
        kernel.run(x, y, out, self.scale)
        return out
