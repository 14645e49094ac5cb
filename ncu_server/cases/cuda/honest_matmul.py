"""
problem: square_matmul
kernel: cuda_matmul
kind: plain
expect: passed
why: Tiles in shared memory, float32 throughout: slower than cuBLAS, and right.
"""


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = torch.empty(a.shape[0], b.shape[1], device=a.device)
        kernel.run(a, b, out)
        return out
