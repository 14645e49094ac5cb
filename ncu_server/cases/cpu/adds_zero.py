"""
problem: linear_relu
kernel: scale_add
kind: decoy
expect: rejected|passed
strict: rejected
why: torch computes, and the kernel adds a zero to every element, so that the output does depend on it.
twin: honest_linear_relu
at_most: 2
"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(256, 256)

    def forward(self, x):
        full = torch.relu(self.fc(x))
        out = torch.empty_like(full)
        kernel.run(full, torch.zeros_like(full), out, 1.0)
        return out
