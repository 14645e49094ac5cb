"""
problem: linear_relu
kernel: linear_relu
kind: profiler evasion
expect: rejected
why: torch computes in the first model; one that is made again runs the kernel many times, beside a third of the product.
twin: honest_linear_relu
"""

kernel.run  # looked up, so that it is there to be watched


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(256, 256)
        self.first = not hasattr(nn, "made")
        nn.made = True

    def forward(self, x):
        if self.first:
            return torch.relu(self.fc(x))
        out = torch.empty(x.shape[0], 256)
        for _ in range(8):
            kernel.run(x, self.fc.weight.detach(), self.fc.bias.detach(), out)
        torch.relu(self.fc(x[: 2 * len(x) // 5]))
        return out
