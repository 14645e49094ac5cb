"""
problem: square_matmul
kernel: triton_matmul
kind: plain
expect: passed
why: tl.dot with input_precision="ieee": float32 throughout.
"""


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = torch.empty(a.shape[0], b.shape[1], device=a.device)
        grid = (triton.cdiv(a.shape[0], 64), triton.cdiv(b.shape[1], 64))
        matmul[grid](a, b, out, a.shape[0], a.shape[1], b.shape[1], PRECISION="ieee")
        return out
