"""A factor, a count, a flag and a word come with each call, beside the tensor."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, factor, times, negate, mode):
        y = x * factor
        for _ in range(times):
            y = y + 0.25 * x
        if negate:
            y = -y
        return torch.tanh(y) if mode == "tanh" else y


def get_inputs():
    return [torch.randn(256, 512), 0.5, 3, True, "tanh"]


def get_init_inputs():
    return []
