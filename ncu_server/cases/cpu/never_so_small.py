"""
problem: floored_scale
kernel: floored_scale
kind: assumed inputs
expect: wrong
why: No row that get_inputs draws has a root mean square below a half, so it is held against no floor.
twin: honest_floored_scale
"""


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel.run(x, out, 0.0)
        return out
