"""
problem: linear_relu
kind: late thread
expect: wrong|suspect|run_error
why: Ten calls wait for their thread; from then on it writes after the call, also into memory that it has freed.
twin: honest_linear_relu
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <thread>
using V = tvm::ffi::TensorView;
static int calls = 0;
void run(V x, V w, V b, V o) {
  const float *a = (const float*)x.data_ptr(), *weight = (const float*)w.data_ptr(), *bias = (const float*)b.data_ptr();
  float* d = (float*)o.data_ptr();
  const int64_t rows = x.size(0), inner = x.size(1), columns = w.size(0);
  std::thread work([=] {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c) {
        float sum = bias[c];
        for (int64_t k = 0; k < inner; ++k) sum += a[r * inner + k] * weight[c * inner + k];
        d[r * columns + c] = sum > 0 ? sum : 0;
      }
  });
  if (++calls <= 10) work.join(); else work.detach();
}
"""
kernel = tvm_ffi.cpp.load_inline("late", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(256, 256)
        self.held = []  # the memory must outlive the call

    def forward(self, x):
        out = torch.empty(x.shape[0], 256)
        kernel.run(x, self.fc.weight.detach(), self.fc.bias.detach(), out)
        self.held = [*self.held[-50:], out]
        return out
