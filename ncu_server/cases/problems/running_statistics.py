"""Normalises by column, and keeps running statistics of a hundred numbers beside it."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(128))
        self.register_buffer("var", torch.ones(128))
        self.register_buffer("steps", torch.tensor(0))

    def forward(self, x):
        var, mean = torch.var_mean(x, 0)
        self.mean.mul_(0.9).add_(mean, alpha=0.1)
        self.var.mul_(0.9).add_(var, alpha=0.1)
        self.steps.add_(1)
        return (x - mean) * torch.rsqrt(var + 1e-5)


def get_inputs():
    return [torch.randn(512, 128)]


def get_init_inputs():
    return []
