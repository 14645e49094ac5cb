import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale_add(x, y, o, scale, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = at < n
    tl.store(o + at, tl.load(x + at, mask=live) * scale + tl.load(y + at, mask=live), mask=live)
