"""
problem: square_matmul
kernel: cuda_matmul
kind: library beside kernels
expect: passed
strict: rejected
why: torch multiplies half of the rows, its own kernel the others: hybrid, which the default rules label and allow.
"""


class ModelNew(nn.Module):
    def forward(self, a, b):
        out, half = torch.empty(a.shape[0], b.shape[1], device=a.device), a.shape[0] // 2
        torch.mm(a[:half], b, out=out[:half])
        kernel.run(a[half:], b, out[half:])
        return out
