"""
problem: drawn_flag
kernel: drawn_flag
kind: assumed inputs
expect: wrong
why: Takes the flag for unset, as one draw of four has it; inputs as drawn show it in the other three.
twin: honest_drawn_flag
"""


class ModelNew(nn.Module):
    def forward(self, x, y, multiplies):
        out = torch.empty_like(x)
        kernel.run(x, y, out, False)
        return out
