"""
problem: three_scales
kernel: three_scales
kind: zeros
expect: wrong
why: Two features of three are zeros, which are small errors beside the third.
twin: honest_three_scales
"""


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], 3 * x.shape[1])
        kernel.run(x, out, False)
        return out
