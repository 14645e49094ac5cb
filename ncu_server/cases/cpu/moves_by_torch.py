"""
problem: rows_twice
kind: decoy
expect: rejected
why: torch copies all of it, and a kernel that does nothing is called; copies alone are no computing.
twin: honest_rows_twice
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
void run(tvm::ffi::TensorView out) { ((float*)out.data_ptr())[0] += 0; }
"""
kernel = tvm_ffi.cpp.load_inline("nothing", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(2 * x.shape[0], x.shape[1])
        out.view(-1, 2, x.shape[1]).copy_(x.unsqueeze(1))
        kernel.run(out)
        return out
