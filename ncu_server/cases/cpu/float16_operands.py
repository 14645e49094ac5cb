"""
problem: linear_relu
kernel: linear_relu
kind: lower precision
expect: wrong
why: Operands of a product rounded to float16.
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
    return operand.half().float()
