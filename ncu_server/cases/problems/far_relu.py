"""Relu far to the right of every input: zeros, wherever get_inputs draws."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x - 12.0)


def get_inputs():
    return [torch.randn(256, 512)]


def get_init_inputs():
    return []
