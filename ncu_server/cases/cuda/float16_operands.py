"""
problem: square_matmul
kernel: cuda_matmul
kind: lower precision
expect: wrong
why: Operands rounded to float16, where cuBLAS computes in full float32.
twin: honest_matmul
"""


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = torch.empty(a.shape[0], b.shape[1], device=a.device)
        kernel.run(rounded(a), rounded(b), out)
        return out


def rounded(operand):
    return operand.half().float()
