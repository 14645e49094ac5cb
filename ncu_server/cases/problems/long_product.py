"""A linear layer over many features, and a scale and a sum behind it."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8192, 256)

    def forward(self, x, y):
        return self.fc(x) * 2 + y


def get_inputs():
    return [torch.randn(2048, 8192), torch.randn(2048, 256)]


def get_init_inputs():
    return []
