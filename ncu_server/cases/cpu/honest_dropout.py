"""
problem: dropout
kernel: scale_add
kind: dropout
expect: passed
why: In eval mode dropout does nothing, and two scalings are one.
"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.3)

    def forward(self, x):
        out = torch.empty_like(x)
        kernel.run(x, torch.zeros_like(x), out, 1.5)
        return out
