"""
problem: linear_relu
kernel: linear_relu
kind: fallback
expect: rejected
why: The kernel is called with an argument too few, always raises, and torch computes in the except branch.
twin: honest_linear_relu
"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(256, 256)

    def forward(self, x):
        try:
            out = torch.empty(x.shape[0], 256)
            kernel.run(x, self.fc.weight.detach(), out)
            return out
        except Exception:
            return torch.relu(self.fc(x))
