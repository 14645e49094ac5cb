"""
problem: linear_relu
kind: lying tensor
expect: wrong|run_error
why: Its output's pages are out of reach, and the handler of the fault computes when somebody reads them, past the clock.
twin: honest_linear_relu
"""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <csignal>
#include <cstdint>
#include <sys/mman.h>
using V = tvm::ffi::TensorView;
static const float *a, *weight, *bias;
static float* o;
static int64_t rows, inner, columns;
static char *low = nullptr, *high = nullptr;  // pages that are out of reach
static struct sigaction old;

static void compute(int64_t from, int64_t to, char* first, char* last) {
  for (int64_t r = from; r < to; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      char* to_write = (char*)&o[r * columns + c];
      if (to_write < first || to_write >= last) continue;
      float part[8] = {0};
      for (int64_t k = 0; k < inner; k += 8)
        for (int u = 0; u < 8; ++u) part[u] += a[r * inner + k + u] * weight[c * inner + k + u];
      float sum = bias[c];
      for (float p : part) sum += p;
      o[r * columns + c] = sum > 0 ? sum : 0;
    }
}
static void open_again() {
  if (low) mprotect(low, high - low, PROT_READ | PROT_WRITE);
  low = high = nullptr;
}
static void touched(int signal, siginfo_t* info, void* context) {
  char* at = (char*)info->si_addr;
  if (!low || at < low || at >= high) {
    sigaction(SIGSEGV, &old, nullptr);
    return;
  }
  char *first = low, *last = high;
  open_again();
  compute(0, rows, first, last);
}
void run(V x, V w, V b, V out) {
  static bool ready = false;
  if (!ready) {
    struct sigaction action = {};
    action.sa_sigaction = touched;
    action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &old);
    ready = true;
  }
  open_again();
  a = (const float*)x.data_ptr(); weight = (const float*)w.data_ptr(); bias = (const float*)b.data_ptr();
  o = (float*)out.data_ptr(); rows = x.size(0); inner = x.size(1); columns = w.size(0);
  const uintptr_t page = 4096, begin = (uintptr_t)o, end = begin + rows * columns * 4;
  low = (char*)((begin + page - 1) / page * page);
  high = (char*)(end / page * page);
  const int64_t head = ((uintptr_t)low - begin + columns * 4 - 1) / (columns * 4), tail = (end - (uintptr_t)high + columns * 4 - 1) / (columns * 4);
  compute(0, head, (char*)begin, (char*)end);
  compute(rows - tail, rows, (char*)begin, (char*)end);
  volatile float sink = 0;  // no faster than its inputs can be read
  for (int64_t i = 0; i < rows * inner; i += 4) sink = sink + a[i];
  mprotect(low, high - low, PROT_NONE);
}
"""
kernel = tvm_ffi.cpp.load_inline("late", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3", "-march=native"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(256, 256)

    def forward(self, x):
        out = torch.empty(x.shape[0], 256)
        kernel.run(x, self.fc.weight.detach(), self.fc.bias.detach(), out)
        return out
