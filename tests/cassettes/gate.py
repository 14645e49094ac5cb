"""Squeeze and excite: each channel scaled by a gate that two small layers make of the channels' means."""

import torch


class Model(torch.nn.Module):
    def __init__(self, channels: int, squeezed: int):
        super().__init__()
        self.down = torch.nn.Linear(channels, squeezed)
        self.up = torch.nn.Linear(squeezed, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = torch.relu(self.down(x.mean(dim=(2, 3))))
        gate = torch.sigmoid(self.up(gate))
        return x * gate[:, :, None, None] + x


def get_inputs():
    return [torch.randn(16, 128, 32, 32)]


def get_init_inputs():
    return [128, 16]
