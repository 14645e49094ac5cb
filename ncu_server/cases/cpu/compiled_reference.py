"""
problem: linear_relu
kernel: linear_relu
kind: wrapped reference
expect: rejected|run_error
why: torch.compile of the module as it stands, beside a kernel that is built and called once.
twin: honest_linear_relu
"""


class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(256, 256)

    def forward(self, x):
        return torch.relu(self.fc(x))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.whole = Whole()
        self.call = torch.compile(self.whole)
        kernel.run(torch.zeros(1, 256), self.whole.fc.weight.detach(), self.whole.fc.bias.detach(), torch.empty(1, 256))

    def forward(self, x):
        return self.call(x)
