"""
problem: scale_add
kind: endless
expect: timeout
why: Ignores every polite signal and spins in C++, where Python cannot interrupt it.
twin: honest_scale_add
timeout: 10
"""

import signal

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
void run() { for (volatile unsigned long i = 0;; ++i) {} }
"""
kernel = tvm_ffi.cpp.load_inline("spin", cpp_sources=SOURCE, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()

    def forward(self, x, y):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        kernel.run()
        return x
