"""
problem: rows_twice
kind: decoy
expect: rejected
why: torch copies all of it and a kernel does nothing; a model that is not the first gives zeros, so that its output
    seems to come from the kernel.
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
    def __init__(self):
        super().__init__()
        self.first = not hasattr(torch.nn, "made")
        torch.nn.made = True

    def forward(self, x):
        out = torch.zeros(2 * x.shape[0], x.shape[1])
        if self.first:
            out.view(-1, 2, x.shape[1]).copy_(x.unsqueeze(1))
        kernel.run(out)
        return out
