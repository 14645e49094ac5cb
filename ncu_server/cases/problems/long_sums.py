"""Sums of very many terms."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.sum(1)


def get_inputs():
    return [torch.randn(16, 131072)]


def get_init_inputs():
    return []
