"""
problem: rows_twice
kind: decoy
expect: rejected
why: torch copies all of it; the kernel only says how many elements there are, without which the call raises.
twin: honest_rows_twice
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = "int64_t run(tvm::ffi::TensorView out) { return out.numel(); }"
kernel = tvm_ffi.cpp.load_inline("count", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(2 * x.shape[0], x.shape[1])
        out.view(-1, 2, x.shape[1]).copy_(x.unsqueeze(1))
        return out[: kernel.run(out) // x.shape[1]]
