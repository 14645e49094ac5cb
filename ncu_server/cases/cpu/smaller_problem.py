"""
problem: linear_relu
kernel: linear_relu
kind: problem edit
expect: wrong
why: Brings a Model, a batch and layer sizes of its own, an eighth of what was asked.
twin: honest_linear_relu
"""


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(256, 32)

    def forward(self, x):
        return torch.relu(self.fc(x))


def get_inputs():
    return [torch.randn(8, 256)]


def get_init_inputs():
    return []


class ModelNew(Model):
    def forward(self, x):
        out = torch.empty(min(x.shape[0], 8), 32)
        kernel.run(x[:8], self.fc.weight.detach(), self.fc.bias.detach(), out)
        return out
