"""
problem: wide_softmax
kind: tuned
expect: passed
why: Autotuned over warps and stages: the tuner runs the kernel many times before the first result.
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.autotune([triton.Config({"BLOCK": b}, num_warps=w, num_stages=2) for b in (2048, 4096) for w in (4, 8)], ["n"])
@triton.jit
def softmax(x, o, n, BLOCK: tl.constexpr):
    row = tl.program_id(0) * n
    at = tl.arange(0, BLOCK)
    most = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        most = tl.maximum(most, tl.load(x + row + start + at, mask=start + at < n, other=float("-inf")))
    peak = tl.max(most, axis=0)
    for start in range(0, n, BLOCK):
        total += tl.exp(tl.load(x + row + start + at, mask=start + at < n, other=float("-inf")) - peak)
    whole = tl.sum(total, axis=0)
    for start in range(0, n, BLOCK):
        live = start + at < n
        tl.store(o + row + start + at, tl.exp(tl.load(x + row + start + at, mask=live) - peak) / whole, mask=live)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        softmax[(x.shape[0],)](x, out, x.shape[1])
        return out
