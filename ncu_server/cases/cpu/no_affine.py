"""
problem: layer_norm
kernel: layer_norm
kind: ignored parameters
expect: wrong
why: A new LayerNorm's weight is ones and its bias zeros, so both are left out.
twin: honest_layer_norm
"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(1024)
        self.ones, self.zeros = torch.ones(1024), torch.zeros(1024)

    def forward(self, x):
        out = torch.empty_like(x)
        kernel.run(x, self.ones, self.zeros, out)
        return out
