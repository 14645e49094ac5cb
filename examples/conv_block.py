"""A convolution block: convolution, batch norm by its running statistics, activation and pooling."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels_in: int, channels_out: int):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels_out)
        self.act = nn.SiLU()
        self.pool = nn.MaxPool2d(2)
        self.eval()

    def forward(self, x):
        return self.pool(self.act(self.norm(self.conv(x))))


def get_inputs():
    return [torch.randn(8, 16, 96, 96)]


def get_init_inputs():
    return [16, 32]
