"""
problem: drawn_flag
kernel: drawn_flag
kind: assumed inputs
expect: wrong
why: Every other draw sets the flag, so it is not read; inputs as drawn show it in one of two runs.
twin: honest_drawn_flag
"""


class ModelNew(nn.Module):
    def forward(self, x, y, multiplies):
        out = torch.empty_like(x)
        kernel.run(x, y, out, True)
        return out
