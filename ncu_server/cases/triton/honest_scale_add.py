"""
problem: wide_scale_add
kernel: triton_scale_add
kind: plain
expect: passed
why: One program a block, masked at the end.
"""


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, y):
        out, n = torch.empty_like(x), x.numel()
        scale_add[(triton.cdiv(n, 1024),)](x, y, out, self.scale, n, BLOCK=1024)
        return out
