"""
problem: long_product
kernel: cuda_scale_add
kind: decoy
expect: rejected
why: torch computes all of the reference, and the kernel adds a zero: it decides the output, and replaces nothing.
twin: honest_tail
"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8192, 256)

    def forward(self, x, y):
        full = (self.fc(x) * 2 + y).detach()
        out = torch.empty_like(full)
        kernel.run(full, torch.zeros_like(full), out, 1.0)
        return out
