"""
problem: scale_add
kernel: scale_add
kind: failed launch
expect: wrong
why: The kernel is called in a way that always raises, and the exception is swallowed.
twin: honest_scale_add
"""


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, y):
        out = torch.empty_like(x)
        try:
            kernel.run(x, y, out)
        except Exception:
            pass
        return out
