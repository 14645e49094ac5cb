"""
problem: scale_add
kernel: scale_add
kind: destroyed inputs
expect: wrong
why: The right values, written over the caller's x: no memory to allocate, and less to move.
twin: honest_scale_add
"""


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, y):
        kernel.run(x, y, x, self.scale)
        return x.view(x.shape)
