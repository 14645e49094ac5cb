"""
problem: wide_scale_add
kernel: cuda_scale_add
kind: lower precision
expect: wrong
why: Moves half of the bytes by going through float16, and widens the result.
twin: honest_scale_add
"""


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, y):
        out = torch.empty_like(x)
        kernel.run(x, y, out, self.scale)
        return out.half().float()
