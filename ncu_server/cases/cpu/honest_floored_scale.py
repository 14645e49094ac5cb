"""
problem: floored_scale
kernel: floored_scale
kind: plain
expect: passed
why: Rows over their root mean square, held against the floor that no drawn row is below.
"""


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel.run(x, out, 0.5)
        return out
