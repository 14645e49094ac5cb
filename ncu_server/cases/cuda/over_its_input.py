"""
problem: wide_scale_add
kernel: cuda_scale_add
kind: destroyed inputs
expect: wrong
why: Writes the result over the caller's x.
twin: honest_scale_add
"""


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, y):
        kernel.run(x, y, x, self.scale)
        return x.view(x.shape)
