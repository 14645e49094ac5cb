"""
problem: masked_scores
kind: thread pools
expect: passed
why: Its own pool of two threads stays between calls; none works after a call has returned.
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
using V = tvm::ffi::TensorView;
struct Pool {
  std::mutex mutex;
  std::condition_variable wake, done;
  std::function<void(int)> job;
  int turn = 0, left = 0;
  Pool() {
    for (int t = 0; t < 2; ++t)
      std::thread([this, t] {
        for (int seen = 0;;) {
          std::unique_lock<std::mutex> lock(mutex);
          wake.wait(lock, [&] { return turn != seen; });
          seen = turn;
          auto mine = job;
          lock.unlock();
          mine(t);
          lock.lock();
          if (--left == 0) done.notify_all();
        }
      }).detach();
  }
  void run(std::function<void(int)> f) {
    std::unique_lock<std::mutex> lock(mutex);
    job = f, left = 2, ++turn;
    wake.notify_all();
    done.wait(lock, [&] { return left == 0; });
  }
};
void run(V x, V m, V o) {
  static Pool* pool = new Pool;
  const int64_t n = x.numel(), area = m.numel();
  const float *a = (const float*)x.data_ptr(), *mask = (const float*)m.data_ptr();
  float* d = (float*)o.data_ptr();
  pool->run([=](int t) {
    for (int64_t i = n * t / 2; i < n * (t + 1) / 2; ++i) d[i] = a[i] * mask[i % area];
  });
}
"""
kernel = tvm_ffi.cpp.load_inline("masked", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])


class ModelNew(nn.Module):
    def forward(self, scores, mask):
        out = torch.empty_like(scores)
        kernel.run(scores, mask, out)
        return out
