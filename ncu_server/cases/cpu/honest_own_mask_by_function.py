"""
problem: functional_dropout
kernel: scale_add
kind: dropout
expect: passed
why: Reference and candidate hang on their mode alone: neither holds a module of dropout.
"""


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel.run(x, torch.zeros_like(x), out, 1.5)
        if self.training:
            out *= (torch.rand_like(x) >= 0.3) / 0.7
        return out
