"""
problem: drawn_flag
kernel: drawn_flag
kind: plain
expect: passed
why: A product or a sum, as a flag says that is drawn with the inputs.
"""


class ModelNew(nn.Module):
    def forward(self, x, y, multiplies):
        out = torch.empty_like(x)
        kernel.run(x, y, out, bool(multiplies))
        return out
