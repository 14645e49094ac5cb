"""
problem: square_matmul
kernel: triton_matmul
kind: lower precision
expect: wrong
why: tl.dot in tf32, which is what it does unless it is told otherwise.
twin: honest_matmul
"""


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = torch.empty(a.shape[0], b.shape[1], device=a.device)
        grid = (triton.cdiv(a.shape[0], 64), triton.cdiv(b.shape[1], 64))
        matmul[grid](a, b, out, a.shape[0], a.shape[1], b.shape[1], PRECISION="tf32")
        return out
