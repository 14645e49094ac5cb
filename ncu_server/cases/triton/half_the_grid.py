"""
problem: wide_scale_add
kernel: triton_scale_add
kind: partial work
expect: wrong
why: Half of the programs; the rest of the output is what memory held.
twin: honest_scale_add
"""


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, y):
        out, n = torch.empty_like(x), x.numel()
        scale_add[(triton.cdiv(n, 2048),)](x, y, out, self.scale, n, BLOCK=1024)
        return out
