"""
problem: matmul
kernel: matmul
kind: plain
expect: passed
why: Three loops in the order of memory.
"""


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = torch.empty(a.shape[0], b.shape[1])
        kernel.run(a, b, out)
        return out
