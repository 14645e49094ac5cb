"""The index of each row's maximum, shifted far from zero: an exact integer."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.argmax(dim=1) + 50_000


def get_inputs():
    return [torch.randn(64, 2048)]


def get_init_inputs():
    return []
