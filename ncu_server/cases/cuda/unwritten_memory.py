"""
problem: wide_scale_add
kernel: cuda_scale_add
kind: stale memory
expect: wrong
why: Computes one row into scratch memory and returns what the allocator gives.
twin: honest_scale_add
"""


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, y):
        kernel.run(x[:1], y[:1], torch.empty(1, x.shape[1], device=x.device), self.scale)
        return torch.empty_like(x)
