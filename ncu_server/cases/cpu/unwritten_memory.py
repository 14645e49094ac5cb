"""
problem: scale_add
kernel: scale_add
kind: stale memory
expect: wrong
why: Frees a buffer of the right size in the hope that the next one holds somebody's result.
twin: honest_scale_add
"""


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, y):
        scratch = torch.empty(1, 512)
        kernel.run(x[:1], y[:1], scratch, self.scale)
        return torch.empty(512, 512)
