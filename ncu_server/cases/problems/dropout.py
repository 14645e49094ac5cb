"""Dropout between two scalings; nobody can compare random numbers."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.3)

    def forward(self, x):
        return self.drop(x * 3.0) * 0.5


def get_inputs():
    return [torch.randn(256, 256)]


def get_init_inputs():
    return []
