"""
problem: lower_outer
kernel: lower_outer
kind: stale memory
expect: wrong
why: Fresh pages are zero, and so is all above the diagonal, which is never written.
twin: honest_lower_outer
"""


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty(x.numel(), y.numel())
        kernel.run(x, y, out, False)
        return out
