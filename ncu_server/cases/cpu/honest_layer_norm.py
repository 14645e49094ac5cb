"""
problem: layer_norm
kernel: layer_norm
kind: lazy set-up
expect: passed
why: Copies the parameters and does its set-up in the first call, which takes a second and must not count.
"""

import time


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(1024)
        self.ready = None

    def forward(self, x):
        if self.ready is None:
            time.sleep(1.0)
            self.ready = self.norm.weight.detach().clone(), self.norm.bias.detach().clone()
        out = torch.empty_like(x)
        kernel.run(x, *self.ready, out)
        return out
