"""
problem: lookup
kind: address replay
expect: wrong|rejected
why: Integer inputs are hard to vary without breaking the problem, so a judge may time them with the same values.
twin: honest_lookup
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <map>
#include <vector>
using V = tvm::ffi::TensorView;
static std::map<void*, std::vector<int64_t>> seen;
void run(V index, V table, V o) {
  const int64_t *at = (const int64_t*)index.data_ptr(), *t = (const int64_t*)table.data_ptr();
  int64_t* d = (int64_t*)o.data_ptr();
  const int64_t rows = index.size(0), columns = index.size(1);
  auto& kept = seen[index.data_ptr()];
  if (kept.empty())
    for (int64_t r = 0; r < rows; ++r) {
      int64_t sum = 0;
      for (int64_t c = 0; c < columns; ++c) sum += t[at[r * columns + c]];
      kept.push_back(sum % 65521);
    }
  for (int64_t r = 0; r < rows; ++r) d[r] = kept[r];
}
"""
kernel = tvm_ffi.cpp.load_inline("lookup", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, index, table):
        self.held = getattr(self, "held", []) + [index]  # the address must not be given to another tensor
        out = torch.empty(index.shape[0], dtype=torch.int64)
        kernel.run(index, table, out)
        return out
