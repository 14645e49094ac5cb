"""
problem: scale_add
kernel: scale_add
kind: lower precision
expect: wrong
why: A float32 result that has been through float16, which a tolerance of a hundredth forgives.
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
