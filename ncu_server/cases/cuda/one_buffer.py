"""
problem: wide_scale_add
kernel: cuda_scale_add
kind: buffer reuse
expect: wrong
why: Two outputs take turns, so that a result kept for two calls is overwritten.
twin: honest_scale_add
"""


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.ring = []

    def forward(self, x, y):
        if not self.ring:
            self.ring = [torch.empty_like(x), torch.empty_like(x)]
        self.ring.reverse()
        kernel.run(x, y, self.ring[0], self.scale)
        return self.ring[0]
