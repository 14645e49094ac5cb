"""
problem: linear_relu
kernel: linear_relu
kind: library beside kernels
expect: passed
strict: rejected
why: Half of the rows by torch, half by its own kernel: hybrid, which the default rules label and allow.
"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(256, 256)

    def forward(self, x):
        out = torch.empty(x.shape[0], 256)
        half = x.shape[0] // 2
        torch.clamp(torch.nn.functional.linear(x[:half], self.fc.weight, self.fc.bias), min=0, out=out[:half])
        kernel.run(x[half:], self.fc.weight.detach(), self.fc.bias.detach(), out[half:])
        return out
