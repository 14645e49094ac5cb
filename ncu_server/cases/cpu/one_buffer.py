"""
problem: scale_add
kernel: scale_add
kind: buffer reuse
expect: wrong
why: Every call writes the same tensor, so that a result kept from one call is overwritten by the next.
twin: honest_scale_add
"""


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.out = torch.empty(512, 512)

    def forward(self, x, y):
        kernel.run(x, y, self.out, self.scale)
        return self.out
