"""
problem: lookup
kind: integers
expect: passed
why: Integers stay integers: a judge that makes them floats breaks the indexing.
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
using V = tvm::ffi::TensorView;
void run(V index, V table, V o) {
  const int64_t *at = (const int64_t*)index.data_ptr(), *t = (const int64_t*)table.data_ptr();
  const int64_t rows = index.size(0), columns = index.size(1);
  for (int64_t r = 0; r < rows; ++r) {
    int64_t sum = 0;
    for (int64_t c = 0; c < columns; ++c) sum += t[at[r * columns + c]];
    ((int64_t*)o.data_ptr())[r] = sum % 65521;
  }
}
"""
kernel = tvm_ffi.cpp.load_inline("lookup", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, index, table):
        out = torch.empty(index.shape[0], dtype=torch.int64)
        kernel.run(index, table, out)
        return out
