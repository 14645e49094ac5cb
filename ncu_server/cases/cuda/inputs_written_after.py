"""
problem: square_matmul
kind: destroyed inputs
expect: wrong|rejected
why: Returns zeros, and a thread makes the inputs zeros when the call has returned, so that zeros would be right.
twin: honest_matmul
"""

import threading
import time

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        def clear():
            time.sleep(0.001)
            a.zero_()
            b.zero_()

        threading.Thread(target=clear).start()
        return torch.zeros(a.shape[0], b.shape[1], device=a.device)
