"""
problem: linear_relu
kernel: linear_relu
kind: containers of torch
expect: passed
why: nn.Linear only holds the parameters and torch.empty the output; the product is the kernel's.
"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(256, 256)

    def forward(self, x):
        out = torch.empty(x.shape[0], 256)
        kernel.run(x, self.fc.weight.detach(), self.fc.bias.detach(), out)
        return out
