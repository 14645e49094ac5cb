"""A 3 x 3 convolution of each channel by itself."""

import torch


class Model(torch.nn.Module):
    def __init__(self, channels: int, size: int):
        super().__init__()
        self.filter = torch.nn.Conv2d(channels, channels, size, groups=channels, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.filter(x)


def get_inputs():
    return [torch.rand(16, 64, 512, 512)]


def get_init_inputs():
    return [64, 3]
