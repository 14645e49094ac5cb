"""
problem: given_values
kernel: scaled_tanh
kind: burnt-in values
expect: wrong
why: The flag that get_inputs gives is always set, so it is not read.
twin: honest_given_values
"""


class ModelNew(nn.Module):
    def forward(self, x, factor, times, negate, mode):
        out = torch.empty_like(x)
        kernel.run(x, out, -(factor + 0.25 * times))
        return out
