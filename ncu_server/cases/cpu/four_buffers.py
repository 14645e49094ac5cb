"""
problem: scale_add
kernel: scale_add
kind: buffer reuse
expect: wrong
why: Four outputs take turns, which hides the reuse from whoever holds only two.
twin: honest_scale_add
"""


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.ring = [torch.empty(512, 512) for _ in range(4)]

    def forward(self, x, y):
        self.ring.append(self.ring.pop(0))
        kernel.run(x, y, self.ring[0], self.scale)
        return self.ring[0]
