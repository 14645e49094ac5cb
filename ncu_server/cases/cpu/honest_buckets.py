"""
problem: buckets
kind: integers
expect: passed
why: A pair of booleans and bytes, exact.
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
using V = tvm::ffi::TensorView;
void run(V x, V big, V quarter) {
  const float* a = (const float*)x.data_ptr();
  for (int64_t i = 0; i < x.numel(); ++i) {
    ((bool*)big.data_ptr())[i] = a[i] > 0.5f;
    ((unsigned char*)quarter.data_ptr())[i] = (unsigned char)(a[i] * 4);
  }
}
"""
kernel = tvm_ffi.cpp.load_inline("buckets", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        big, quarter = torch.empty(x.shape, dtype=torch.bool), torch.empty(x.shape, dtype=torch.uint8)
        kernel.run(x, big, quarter)
        return big, quarter
