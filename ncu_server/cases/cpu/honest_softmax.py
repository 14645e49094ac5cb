"""
problem: wide_softmax
kernel: softmax
kind: fast math
expect: passed
why: -ffast-math and another order of additions, within the reference's own error.
"""


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel.run(x, out)
        return out
