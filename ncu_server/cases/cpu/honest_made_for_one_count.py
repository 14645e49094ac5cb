"""
problem: given_values
kernel: scaled_tanh
kind: plain values
expect: passed
why: Is made for one count, and says so where another one comes.
"""


class ModelNew(nn.Module):
    def forward(self, x, factor, times, negate, mode):
        out = torch.empty_like(x)
        if times != 3:
            raise ValueError("this kernel is made for three times")
        kernel.run(x, out, (-1 if negate else 1) * (factor + 0.75))
        return out
