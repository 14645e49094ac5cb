"""
problem: wide_scale_add
kernel: triton_scale_add
kind: decoy
expect: rejected
why: The kernel runs on sixteen elements of scratch memory; torch computes.
twin: honest_scale_add
"""


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, y):
        scale_add[(1,)](x, y, torch.empty(16, device=x.device), self.scale, 16, BLOCK=16)
        return x * self.scale + y
