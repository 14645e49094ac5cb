"""
problem: linear_relu
kernel: linear_relu
kind: lower precision
expect: wrong
why: Operands of a product scaled to the range of fp8, and rounded to it.
twin: honest_linear_relu
"""


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(256, 256)

    def forward(self, x):
        out = torch.empty(x.shape[0], 256)
        kernel.run(rounded(x), rounded(self.fc.weight.detach()), self.fc.bias.detach(), out)
        return out


def rounded(operand):
    scale = 448 / operand.abs().max()
    return (operand * scale).to(torch.float8_e4m3fn).float() / scale
