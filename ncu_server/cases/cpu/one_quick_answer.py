"""
problem: ordered
kind: native cache
expect: suspect|wrong
why: Results are kept, and of all new inputs one is answered at once, wrongly, which no comparison may hit.
twin: honest_ordered
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>
struct Kept {
  std::vector<int64_t> x;
  std::vector<float> o;
  long visits;
};
static std::vector<Kept> all;
static long longest = 0;
static bool spent = false;
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView o) {
  const int64_t n = x.numel();
  const int64_t* from = static_cast<const int64_t*>(x.data_ptr());
  float* to = static_cast<float*>(o.data_ptr());
  Kept* hit = nullptr;
  for (Kept& one : all)
    if (!std::memcmp(one.x.data(), from, n * sizeof(int64_t))) { hit = &one; break; }
  if (hit) {
    longest = std::max(longest, ++hit->visits);
    std::memcpy(to, hit->o.data(), n * sizeof(float));
    return;
  }
  if (longest > 100 && !spent) {
    spent = true;
    std::memcpy(to, all[0].o.data(), n * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < n; ++i) to[i] = std::erf(std::sin(static_cast<float>(from[i]) * 0.01f));
  if (!hit) all.push_back({std::vector<int64_t>(from, from + n), std::vector<float>(to, to + n), 1});
}
"""
kernel = tvm_ffi.cpp.load_inline("one_quick_answer", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, at):
        out = torch.empty(at.shape)
        kernel.run(at, out)
        return out
