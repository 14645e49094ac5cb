"""A product or a sum, as a flag says that is drawn with the inputs."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y, multiplies):
        return torch.where(multiplies != 0, x * y, x + y)


def get_inputs():
    return [torch.randn(256, 256), torch.randn(256, 256), torch.randint(0, 4, (1,))]


def get_init_inputs():
    return []
