"""
problem: given_values
kernel: scaled_tanh
kind: plain values
expect: passed
why: Reads the numbers and the flag that come with the call, and refuses another word.
"""


class ModelNew(nn.Module):
    def forward(self, x, factor, times, negate, mode):
        out = torch.empty_like(x)
        if mode != "tanh":
            raise ValueError(f"this kernel is made for tanh, not for {mode}")
        kernel.run(x, out, (-1 if negate else 1) * (factor + 0.25 * times))
        return out
