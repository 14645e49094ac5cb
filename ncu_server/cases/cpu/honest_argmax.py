"""
problem: argmax
kind: defensive code
expect: passed
why: Handles exceptions, checks addresses, imports threading and passes: words that bans on text turn away.
"""

import threading
import warnings

import torch
import torch.nn as nn
import tvm_ffi.cpp

try:
    import numpy
except ImportError:
    numpy = None

SOURCE = r"""
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView o) {
  const int64_t columns = x.size(1);
  for (int64_t r = 0; r < x.size(0); ++r) {
    const float* row = (const float*)x.data_ptr() + r * columns;
    int64_t best = 0;
    for (int64_t c = 0; c < columns; ++c)
      if (row[c] > row[best]) best = c;
    ((int64_t*)o.data_ptr())[r] = best + 50000;
  }
}
"""
kernel = tvm_ffi.cpp.load_inline("best", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    lock = threading.Lock()

    def forward(self, x):
        if x.data_ptr() % 4:
            raise ValueError("the input is not aligned")
        try:
            x = x.contiguous()
            with self.lock:
                out = torch.empty(x.shape[0], dtype=torch.int64)
                kernel.run(x, out)
        except RuntimeError as fault:
            warnings.warn(f"no fallback here: {fault}")
            raise
        else:
            pass
        return out
