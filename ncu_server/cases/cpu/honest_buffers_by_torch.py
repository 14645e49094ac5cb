"""
problem: running_statistics
kernel: running_statistics
kind: buffers beside kernels
expect: passed
why: The kernel does the work; torch moves on three buffers of up to 128 numbers, which costs what any call costs.
"""


class ModelNew(Statistics):
    def forward(self, x):
        out, mean, var = torch.empty_like(x), torch.empty(128), torch.empty(128)
        kernel.run(x, mean, var, out, 128)
        self.advance(mean, var)
        return out
