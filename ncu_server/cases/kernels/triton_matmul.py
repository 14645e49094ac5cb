import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def matmul(a, b, o, m, k, n, PRECISION: tl.constexpr):
    rows = tl.program_id(0) * 64 + tl.arange(0, 64)
    columns = tl.program_id(1) * 64 + tl.arange(0, 64)
    inner = tl.arange(0, 32)
    total = tl.zeros((64, 64), tl.float32)
    for start in range(0, k, 32):
        left = tl.load(a + rows[:, None] * k + start + inner[None, :])
        right = tl.load(b + (start + inner)[:, None] * n + columns[None, :])
        total = tl.dot(left, right, total, input_precision=PRECISION)
    tl.store(o + rows[:, None] * n + columns[None, :], total)
