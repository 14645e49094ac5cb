"""
problem: square_matmul
kernel: cuda_matmul
kind: lower precision
expect: wrong
why: Operands scaled to the range of fp8, and rounded to it.
twin: honest_matmul
"""


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = torch.empty(a.shape[0], b.shape[1], device=a.device)
        kernel.run(rounded(a), rounded(b), out)
        return out


def rounded(operand):
    scale = 448 / operand.abs().max()
    return (operand * scale).to(torch.float8_e4m3fn).float() / scale
