"""
problem: linear_relu
kernel: linear_relu
kind: profiler evasion
expect: rejected|suspect
why: torch computes, until the judge wraps the kernel to watch it: a tuple remembers what it was.
twin: honest_linear_relu
"""

REAL = (kernel.run,)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(256, 256)

    def forward(self, x):
        if kernel.run is REAL[0]:
            return torch.relu(self.fc(x))
        out = torch.empty(x.shape[0], 256)
        kernel.run(x, self.fc.weight.detach(), self.fc.bias.detach(), out)
        return out
