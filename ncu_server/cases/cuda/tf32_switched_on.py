"""
problem: square_matmul
kernel: cuda_matmul
kind: lower precision
expect: rejected|wrong
why: Lets torch multiply with tf32 allowed; the kernel does the last tile.
twin: honest_matmul
"""

torch.backends.cuda.matmul.allow_tf32 = True
torch.set_float32_matmul_precision("medium")


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = torch.mm(a, b)
        kernel.run(a[-32:], b, out[-32:])
        return out
