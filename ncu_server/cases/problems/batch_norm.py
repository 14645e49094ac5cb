"""BatchNorm in training mode: it changes its running statistics."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(32)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(64, 32, 8, 8)]


def get_init_inputs():
    return []
