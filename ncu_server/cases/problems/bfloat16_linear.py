"""A linear layer in bfloat16."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(128, 512).bfloat16())

    def forward(self, x):
        return torch.nn.functional.linear(x, self.weight)


def get_inputs():
    return [torch.randn(64, 512).bfloat16()]


def get_init_inputs():
    return []
