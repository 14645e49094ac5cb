"""
problem: relu_in_place
kind: phase replay
expect: wrong
why: Computes nothing for the first 0.9 s of the timed calls, and is honest again when the last one is compared.
twin: honest_returns_its_input
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <chrono>
using Clock = std::chrono::steady_clock;
void run(tvm::ffi::TensorView x) {
  static int calls = 0;
  static Clock::time_point began;
  if (++calls == 13) began = Clock::now();
  if (calls > 12 && Clock::now() - began < std::chrono::milliseconds(900)) return;
  float* a = (float*)x.data_ptr();
  for (int64_t i = 0; i < x.numel(); ++i) a[i] = a[i] < 0 ? 0 : a[i];
}
"""
kernel = tvm_ffi.cpp.load_inline("later", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, x):
        kernel.run(x)
        return x
