"""
problem: square_matmul
kernel: triton_matmul
kind: hidden torch
expect: rejected
why: A whole Triton kernel stands in the file, and torch multiplies.
twin: honest_matmul
"""


class ModelNew(nn.Module):
    def forward(self, a, b):
        return getattr(torch, "mat" + "mul")(a, b)
