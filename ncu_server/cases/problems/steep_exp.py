"""An exponential so steep that its few large values hide the many small ones."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.exp(4 * x)


def get_inputs():
    return [torch.randn(1024, 1024)]


def get_init_inputs():
    return []
