"""Two sequences of drawn lengths, of which the rest is padding."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, lengths):
        inside = torch.arange(x.shape[1]) < lengths[:, None]
        return torch.where(inside[:, :, None], torch.erf(x), 0.0)


def get_inputs():
    return [torch.randn(2, 200, 256), torch.randint(1, 201, (2,))]


def get_init_inputs():
    return []
