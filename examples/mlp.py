"""A small MLP of three layers, as over many samples with few features each."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features: int, hidden: int, out: int):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(features, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, out)
        )

    def forward(self, x):
        return torch.tanh(self.layers(x))


def get_inputs():
    return [torch.randn(8192, 32)]


def get_init_inputs():
    return [32, 128, 16]
