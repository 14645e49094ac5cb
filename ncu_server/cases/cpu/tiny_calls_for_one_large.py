"""
problem: running_statistics
kernel: running_statistics
kind: hidden torch
expect: rejected|passed
strict: rejected
why: Many calls on one number are to take the time of torch's own large ones with them.
twin: honest_buffers_by_torch
"""


class ModelNew(Statistics):
    def forward(self, x):
        out, mean, var = torch.empty_like(x), torch.empty(128), torch.empty(128)
        kernel.run(x, mean, var, out, 128)
        wide = (x - mean).mul_(torch.rsqrt(var + 1e-5))
        one = torch.zeros(())
        for _ in range(80):
            one = one.add(1).mul(1).sub(1)
        out[64:] = wide[64:]
        self.advance(mean, var)
        return out
